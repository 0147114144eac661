package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// pageFiles are the files for browsers. They need no build step, and load nothing from other
// servers.
//
//go:embed page
var pageFiles embed.FS

var catalogPage = template.Must(template.ParseFS(pageFiles, "page/catalog.html"))

// labPage serves the lab's page, the simulator's page, and the files that the pages need.
func labPage(r chi.Router) {
	files := http.FileServerFS(pageFiles)
	r.With(secure, revalidated, unprompted).Get("/", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page/index.html")
	})
	r.With(secure, revalidated).Get("/simulator", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page/simulator.html")
	})
	for _, name := range []string{"style.css", "draw.js", "lab.js", "simulator.js"} {
		r.With(secure, revalidated).Get("/page/"+name, files.ServeHTTP)
	}
}

// secure makes browsers run only code of this server in a page.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy",
			"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// revalidated makes browsers ask each time, because another version of the program may be behind
// the same address.
func revalidated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// unprompted removes the settings from the lab's URL if a script of another site has opened it,
// because with settings the page begins a run. If the user has followed a link, the user wants the
// run. Browsers report which of the two has happened (W3C Fetch Metadata, section 2.3 and 2.4).
func unprompted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if r.URL.RawQuery != "" && (site == "cross-site" || site == "same-site") &&
			r.Header.Get("Sec-Fetch-User") != "?1" {
			w.Header().Set("Cache-Control", "no-store")
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pagePath is the path of the map as a page.
const pagePath = "/catalog"

// catalogRoute serves the map as a page, through the HTTP middleware.
func (s *shop) catalogRoute(
	cached func(http.Handler) http.Handler, ttl time.Duration, ran func(),
) func(chi.Router) {
	return func(r chi.Router) {
		r.With(oneHost, cached, secure).Get(pagePath, func(w http.ResponseWriter, r *http.Request) {
			ran()
			t, err := s.tree(r.Context())
			if err != nil {
				s.fail(w, r, "the category map", err)
				return
			}
			var body bytes.Buffer
			made := struct {
				Made string
				Tree tree
			}{time.Now().UTC().Format("15:04:05 MST"), t}
			if err := catalogPage.Execute(&body, made); err != nil {
				s.fail(w, r, "the page", err)
				return
			}
			sum := sha256.Sum256(body.Bytes())
			w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:12])+`"`)
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			// Browsers ask each time, because they can't be told of a rename. The fleet's cache is
			// told, so it keeps the page (RFC 9213).
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("CDN-Cache-Control",
				fmt.Sprintf("max-age=%d", max(1, int(ttl.Seconds()))))
			_, _ = w.Write(body.Bytes()) // an error means that the client has left
		})
	}
}

// oneHost gives the requests to all replicas the host that they would have behind a load balancer.
// In this example each replica listens on another port, and without oneHost the cache would treat
// each replica as a different site.
func oneHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(r.Context()) // a copy
		r.Host = "shop"
		next.ServeHTTP(w, r)
	})
}
