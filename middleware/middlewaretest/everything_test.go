package middlewaretest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/middleware/middlewaretest"
)

// A handler that reads all parts of a request, behind a cache that compares none of them, has a
// finding of each family. -v shows the report.
func TestEverythingWrong(t *testing.T) {
	t.Parallel()
	build := func() http.Handler {
		return naive(func(*http.Request) string {
			return ""
		})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, r.Method, r.Host, r.TLS != nil, r.Proto, r.RemoteAddr,
				r.URL.EscapedPath(), r.URL.RawQuery, string(body))
			if r.TLS != nil {
				fmt.Fprint(w, r.TLS.ServerName, len(r.TLS.PeerCertificates))
			}
			for name, lines := range r.Header {
				w.Header()["Echo-"+name] = lines
			}
		}))
	}
	found := middlewaretest.Run(middlewaretest.Config{
		Build: build, Fields: []string{"x-own"}, Cookies: []string{"own"},
	}, sample())
	var report strings.Builder
	for _, f := range found {
		fmt.Fprintln(&report, f)
	}
	t.Logf("%d findings\n%s", len(found), &report)
	for _, want := range []string{
		"leaked: Authorization (Basic)\n", "leaked: Authorization (Bearer)\n",
		"leaked: the cookie session\n", "leaked: the cookie session, which is left out\n",
		"leaked: the cookie theme\n", "leaked: the cookie own\n", "leaked: the cookie cart\n",
		"poisoned: the field X-Own\n", "poisoned: two lines of X-Own ",
		"poisoned: the order of two lines of Accept\n",
		"poisoned: another host\n", "poisoned: the host in capitals\n",
		"poisoned: the host with the scheme's own port\n",
		"poisoned: the host with a dot at its end\n", "poisoned: the scheme\n",
		"leaked: a client's certificate\n",
		"poisoned: another server's name in the TLS handshake\n",
		"poisoned: no server's name in the TLS handshake\n",
		"poisoned: another host by TLS for the same server\n", "poisoned: the version HTTP/2\n",
		"poisoned: the version HTTP/1.0\n", "poisoned: the address of the client\n",
		"poisoned: the field X-Own, which Connection names\n",
		"poisoned: the method HEAD\n", "poisoned: the method OPTIONS\n",
		"poisoned: a GET with a body\n", "poisoned: a POST that an override makes a GET\n",
		"poisoned: no query\n", "poisoned: an unknown parameter\n",
		"poisoned: the parameter color, encoded\n", "poisoned: the parameter size in capitals\n",
		"poisoned: the order of the parameters\n", "poisoned: a ; in the place of & behind color\n",
		"poisoned: a slash at the end\n", "poisoned: a doubled slash\n",
		"poisoned: dots that lead back\n", "poisoned: an encoded slash\n",
		"poisoned: a parameter behind ;\n", "poisoned: a suffix that looks static\n",
	} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for name := range middlewaretest.Fields {
		if !strings.Contains(report.String(), "poisoned: the field "+name+"\n") {
			t.Errorf("the report lacks the field %s", name)
		}
	}
	if len(found) > 0 && found[0].Kind != middlewaretest.Leaked {
		t.Errorf("the first finding is not the worst: %v", found[0])
	}
	clean := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "the same")
	})
	middlewaretest.Audit(t, func() http.Handler {
		return clean
	}, httptest.NewRequest(http.MethodGet, "/", nil))
}
