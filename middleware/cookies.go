package middleware

import (
	"net/http"
	"strings"
)

// withoutCookies returns a request without the cookies of these names, which may end in *. It
// returns r itself if the request has none of them. A handler can't use a cookie that it doesn't
// see, so only the other cookies can identify a user.
func withoutCookies(r *http.Request, names []string) *http.Request {
	lines := r.Header["Cookie"]
	if len(names) == 0 || len(lines) == 0 {
		return r
	}
	var kept []string
	changed := false
	for _, line := range lines {
		var own []string
		for pair := range strings.SplitSeq(line, ";") {
			if isIgnored(pair, names) {
				changed = true
			} else if strings.Trim(pair, " \t") != "" {
				own = append(own, strings.Trim(pair, " \t"))
			}
		}
		if len(own) > 0 {
			kept = append(kept, strings.Join(own, "; "))
		}
	}
	if !changed {
		return r
	}
	other := *r
	other.Header = r.Header.Clone()
	if delete(other.Header, "Cookie"); len(kept) > 0 {
		other.Header["Cookie"] = kept
	}
	return &other
}

// isIgnored reports whether the cookie of a pair has one of the names. It reads the cookie's name
// as net/http does.
func isIgnored(pair string, names []string) bool {
	name, _, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
	name = strings.Trim(name, " \t")
	for _, ignored := range names {
		if begin, many := strings.CutSuffix(ignored, "*"); name == ignored ||
			many && strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}
