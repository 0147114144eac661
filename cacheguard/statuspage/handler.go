package statuspage

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

//go:embed page.html page.css page.js
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"short": short, "percent": percent, "count": count, "clock": clock,
}).ParseFS(files, "page.html"))

// assets are the files that the page loads.
var assets = map[string]string{
	"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8",
}

// policy allows the page to load its own style and script and to request its own status. It allows
// no other requests.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page at every path that ends with a slash. Its data is at status.json below
// that path.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	name := path.Base(r.URL.Path)
	switch kind := assets[name]; {
	case kind != "":
		// The file always exists, because assets has only embedded files.
		b, _ := files.ReadFile(name)
		send(w, kind, b)
	case name == "status.json":
		b, err := json.MarshalIndent(p.state(time.Now()), "", "  ")
		if err != nil { // the state has a number that JSON can't represent
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		send(w, "application/json", append(b, '\n'))
	case !strings.HasSuffix(r.URL.Path, "/") && r.URL.Path != "":
		// Relative links of the page need the slash at the end. http.Redirect would make the path
		// absolute, which is wrong under http.StripPrefix. Behind "./" no name is read as another
		// host.
		h.Set("Location", "./"+url.PathEscape(name)+"/")
		w.WriteHeader(http.StatusMovedPermanently)
	default:
		var b bytes.Buffer
		if err := page.Execute(&b, p.state(time.Now())); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		send(w, "text/html; charset=utf-8", b.Bytes())
	}
}

func send(w http.ResponseWriter, kind string, b []byte) {
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(b) // an error means that the client has left
}

// short returns a duration as a short text.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// count returns a number with spaces between its thousands.
func count(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// clock returns a time of the day in UTC, with the date if the time is more than 20 hours ago.
func clock(t time.Time) string {
	if time.Since(t) > 20*time.Hour {
		return t.UTC().Format("2006-01-02 15:04:05")
	}
	return t.UTC().Format("15:04:05")
}
