module github.com/cacheguard/cacheguard/cacheguard/compresscodec

go 1.26.0

require (
	github.com/cacheguard/cacheguard v0.1.0
	github.com/klauspost/compress v1.20.3
	go.uber.org/goleak v1.3.0
)

require github.com/maypok86/otter/v2 v2.4.0 // indirect
