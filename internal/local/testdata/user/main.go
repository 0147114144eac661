// Command user has a tier for values of one type, see TestOtterIsCompiledOnce.
package main

import "github.com/cacheguard/cacheguard/internal/local"

func main() {
	tier, err := local.New(local.Config[struct{ Name string }]{Entries: 1})
	if err != nil {
		panic(err)
	}
	defer tier.Close()
	tier.Get("key")
}
