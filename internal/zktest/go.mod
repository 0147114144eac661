module github.com/cacheguard/cacheguard/internal/zktest

go 1.26.0

require (
	github.com/cacheguard/cacheguard v0.1.0
	github.com/go-zookeeper/zk v1.0.4
	go.uber.org/goleak v1.3.0
)

require github.com/stretchr/testify v1.12.1 // indirect
