package main

import (
	"embed"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// pageFiles are the lab's page, as the browser gets them: nothing is built, and nothing comes from elsewhere.
//
//go:embed page
var pageFiles embed.FS

// page serves the lab's page. A browser runs nothing in it that is not of this server.
func page(r chi.Router) {
	files := http.FileServerFS(pageFiles)
	secure := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Cache-Control", "no-cache") // another version of the program may be behind the same address
			next.ServeHTTP(w, r)
		})
	}
	r.With(secure).Get("/", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page/index.html")
	})
	for _, name := range []string{"style.css", "lab.js"} {
		r.With(secure).Get("/page/"+name, files.ServeHTTP)
	}
}
