package middleware

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Purge removes the responses of these resources, with all their variants, in all processes. If a
// handler started before the purge, its response isn't stored, and requests that come after the
// purge don't get it. A URL with a host names the resource on this host, for http and https. A
// path, with its query, names the resource on every host. For Purge all spellings of a URL name the
// same resource, with or without the scheme's default port. Commit to the origin first, then purge.
// If Purge returns an error, old responses may stay until they are stale.
func (c *Cache) Purge(ctx context.Context, urls ...string) error {
	return c.purge(ctx, urls, c.urlTag)
}

// MarkStale makes the responses of these resources stale. Resources are named as for [Cache.Purge].
// The next request for a resource makes the handler run again. Until the new response is there, the
// old response is served within its stale windows. If these windows haven't begun yet, they begin
// now. If a handler is making a response now, this response is also treated as stale.
func (c *Cache) MarkStale(ctx context.Context, urls ...string) error {
	tags, err := tagsFor(urls, c.urlTag)
	if err != nil {
		return err
	}
	return c.loads.MarkStaleTags(ctx, tags...)
}

// PurgePrefix removes the responses of every resource whose path begins with the segments of one of
// the prefixes, on every host. The prefix "/products" purges /products, /products?page=2 and
// /products/42, but not /products2. "/" purges everything. A prefix has at most 8 segments. A URL
// with a host and no path purges everything on that host.
func (c *Cache) PurgePrefix(ctx context.Context, prefixes ...string) error {
	for _, p := range prefixes {
		if p == "/" {
			return c.invalidate(ctx)
		}
	}
	return c.purge(ctx, prefixes, c.prefixTag)
}

// PurgeTags removes the responses that name at least one of these tags in Cache-Tag (tags separated
// by commas) or in Surrogate-Key (tags separated by spaces).
func (c *Cache) PurgeTags(ctx context.Context, tags ...string) error {
	return c.purge(ctx, tags, ownTag)
}

// URLTags returns the tags that [Cache.Purge] invalidates for these URLs. Pass them to
// InvalidateTags of package outbox, with [Options.Name] as the cache, to purge the URLs in the same
// transaction that changes the data behind the responses.
func (c *Cache) URLTags(urls ...string) ([]string, error) { return tagsFor(urls, c.urlTag) }

// urlTag and prefixTag apply the shaper to the names, because callers of Purge may not know how
// Options change URLs before the key is made.
func (c *Cache) urlTag(url string) (string, error)       { return urlTag(c.shape.url(url)) }
func (c *Cache) prefixTag(prefix string) (string, error) { return prefixTag(c.shape.url(prefix)) }

func ownTag(tag string) (string, error) {
	if tag == "" {
		return "", errors.New("middleware: a tag is empty")
	}
	return surrogateTag(tag), nil
}

// purge invalidates the tags of all names. If one of the names is invalid it invalidates nothing.
func (c *Cache) purge(
	ctx context.Context, names []string, tagOf func(string) (string, error),
) error {
	if len(names) == 0 {
		return nil
	}
	tags, err := tagsFor(names, tagOf)
	if err != nil {
		return err
	}
	return c.invalidate(ctx, tags...)
}

func tagsFor(names []string, tagOf func(string) (string, error)) ([]string, error) {
	tags := make([]string, len(names))
	var errs []error
	for i, name := range names {
		var err error
		if tags[i], err = tagOf(name); err != nil {
			errs = append(errs, err)
		}
	}
	return tags, errors.Join(errs...)
}

// PurgeHandler returns an endpoint for purging. It accepts a POST with "Authorization: Bearer" and
// the token, and with the form values url, prefix, tag and stale (a URL to mark as stale), each as
// often as needed. It answers 204 if everything was purged, 400 with the errors if the request is
// invalid, 401 without the token, 405 if the method isn't POST, and 502 if the purge could not
// reach the store. If token is empty, it answers 401 to every request.
func (c *Cache) PurgeHandler(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if token == "" || !strings.EqualFold(scheme, "Bearer") ||
			subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST is required", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		if err := r.ParseForm(); err != nil {
			http.Error(w, fmt.Sprintf("form can't be read: %v", err), http.StatusBadRequest)
			return
		}
		if err := c.order(r.Form).wrong(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, kind := range c.order(r.Form) {
			if err := kind.do(r.Context(), kind.names...); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// order is the list of purges that a form requests from PurgeHandler.
type order []struct {
	names []string
	tagOf func(string) (string, error)
	do    func(context.Context, ...string) error
}

// order reads a form. An unknown form value becomes a kind without a function.
func (c *Cache) order(form url.Values) (o order) {
	kinds := map[string]order{
		"url":    {{tagOf: c.urlTag, do: c.Purge}},
		"prefix": {{tagOf: c.prefixTag, do: c.PurgePrefix}},
		"stale":  {{tagOf: c.urlTag, do: c.MarkStale}},
		"tag":    {{tagOf: ownTag, do: c.PurgeTags}},
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		kind := append(order{{}}, kinds[name]...)[len(kinds[name])]
		kind.names = form[name]
		if kind.do == nil {
			kind.names = []string{name}
		}
		o = append(o, kind)
	}
	return o
}

// wrong returns the errors of an order, joined. If it returns an error, PurgeHandler purges
// nothing.
func (o order) wrong() error {
	if len(o) == 0 {
		return errors.New("nothing to purge: the form has none of url, prefix, tag and stale")
	}
	var errs []error
	for _, kind := range o {
		if kind.do == nil {
			errs = append(errs,
				fmt.Errorf("form has %q; url, prefix, tag and stale are known", kind.names[0]))
			continue
		}
		_, err := tagsFor(kind.names, kind.tagOf)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
