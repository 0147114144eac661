module github.com/cacheguard/cacheguard/cacheguard/msgpackcodec

go 1.26.0

require (
	github.com/cacheguard/cacheguard v0.1.0
	github.com/vmihailenco/msgpack/v5 v5.4.1
)

require (
	github.com/maypok86/otter/v2 v2.4.0 // indirect
	github.com/vmihailenco/tagparser/v2 v2.0.0 // indirect
)
