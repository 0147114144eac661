module github.com/cacheguard/cacheguard/cacheguard/lock/zklock

go 1.26.0

require (
	github.com/cacheguard/cacheguard v0.1.0
	github.com/cacheguard/cacheguard/internal/zktest v0.1.0
	github.com/go-zookeeper/zk v1.0.4
	github.com/google/uuid v1.6.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
