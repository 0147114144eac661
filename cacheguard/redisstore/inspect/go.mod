module github.com/cacheguard/cacheguard/cacheguard/redisstore/inspect

go 1.26.0

require (
	github.com/cacheguard/cacheguard v0.1.0
	github.com/cacheguard/cacheguard/cacheguard/compresscodec v0.1.0
	github.com/cacheguard/cacheguard/cacheguard/msgpackcodec v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/maypok86/otter/v2 v2.4.0 // indirect
	github.com/vmihailenco/msgpack/v5 v5.4.1 // indirect
	github.com/vmihailenco/tagparser/v2 v2.0.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
