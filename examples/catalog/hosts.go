package main

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// known refuses requests for hosts that are not this server's. The owner of another site can point
// the site's name at this address (DNS rebinding). For a browser, the other site's pages then have
// the same origin as this server. Only this check keeps them from reading this server's answers and
// from renaming categories. The names are the host of -addr and the names in -hosts.
func known(names ...string) func(http.Handler) http.Handler {
	here := map[string]bool{"localhost": true}
	for _, name := range names {
		if name != "" { // -addr :8080
			here[hostname(name)] = true
		}
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			if name := hostname(r.Host); !here[name] && !isAddress(name, local) {
				refuse(w, http.StatusMisdirectedRequest,
					"there is no such host here: -hosts can name it")
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// hostname returns the name in a Host field, without the port, the brackets of an IPv6 address and
// the dot at the end.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isAddress reports whether a name is the address at which this request arrived, or a loopback
// address. An address can't be pointed at another server as a name can.
func isAddress(name string, local net.Addr) bool {
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	if ip.Unmap().IsLoopback() {
		return true
	}
	tcp, ok := local.(*net.TCPAddr)
	return ok && tcp.AddrPort().Addr().Unmap() == ip.Unmap()
}
