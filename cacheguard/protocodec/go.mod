module github.com/cacheguard/cacheguard/cacheguard/protocodec

go 1.26.0

require (
	github.com/cacheguard/cacheguard v0.1.0
	google.golang.org/protobuf v1.36.12
)

require github.com/maypok86/otter/v2 v2.4.0 // indirect
