package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestTagsOf(t *testing.T) {
	for _, c := range []struct {
		key  string
		want []string
	}{
		{"http://h/", []string{"uh/", "p/", "hh"}},
		{"http://h", []string{"uh/", "p/", "hh"}},
		{"http://h?x", []string{"uh/?x", "p/?x", "hh"}},
		{
			"https://h:8080/a/b/c?x",
			[]string{"uh:8080/a/b/c?x", "p/a/b/c?x", "hh:8080", "d/a", "d/a/b", "d/a/b/c"},
		},
		{"http://h/a/", []string{"uh/a/", "p/a/", "hh", "d/a"}},
		{"http://h/a//b", []string{"uh/a//b", "p/a//b", "hh", "d/a", "d/a//b"}},
		{"http://h//", []string{"uh//", "p//", "hh"}},
		{"http://h/a?b/c?d", []string{"uh/a?b/c?d", "p/a?b/c?d", "hh", "d/a"}},
		{"http://h/a?", []string{"uh/a", "p/a", "hh", "d/a"}},
		{"http://h/%7ea%2fb/%c3%A9\xc3\xa9 %",
			[]string{"uh/~a%2Fb/%C3%A9%C3%A9%20%25", "p/~a%2Fb/%C3%A9%C3%A9%20%25", "hh",
				"d/~a%2Fb", "d/~a%2Fb/%C3%A9%C3%A9%20%25"}},
		{"http://h/1/2/3/4/5/6/7/8/9", []string{"uh/1/2/3/4/5/6/7/8/9", "p/1/2/3/4/5/6/7/8/9", "hh",
			"d/1", "d/1/2", "d/1/2/3", "d/1/2/3/4", "d/1/2/3/4/5", "d/1/2/3/4/5/6",
			"d/1/2/3/4/5/6/7", "d/1/2/3/4/5/6/7/8"}},
		{"http://h/a\x1fi/inside\x1fgstaff", []string{"uh/a", "p/a", "hh", "d/a"}},
	} {
		if got := tagsOf(c.key); !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %q\nwant %q", c.key, got, c.want)
		}
	}
}

// A purge removes the responses that it names, and no others.
func TestPurgeFinds(t *testing.T) {
	keys := []string{
		"http://h/", "http://h", "http://other/", "https://h/products", "http://h/products?page=2",
		"http://h/products/",
		"http://h/products/1", "http://h/products/1/reviews?x", "http://h/products2",
		"http://other/products/1",
		"http://h/caf%c3%a9", "http://h/a/b/c/d/e/f/g/h/i", "http://h:8080/",
		"http://h/" + strings.Repeat("long/", 60) + "?" + strings.Repeat("x", 300),
		"http://h/" + strings.Repeat("long/", 60) + "?" + strings.Repeat("y", 300),
		"http://h/" + strings.Repeat("w", 300) + "/1",
	}
	type found = []string
	for _, c := range []struct {
		purge func(string) (string, error)
		what  string
		want  found
	}{
		{urlTag, "/products", found{"https://h/products"}},
		{urlTag, "/products?page=2", found{"http://h/products?page=2"}},
		{urlTag, "/products/1", found{"http://h/products/1", "http://other/products/1"}},
		{urlTag, "https://H:443/products/1", found{"http://h/products/1"}},
		{urlTag, "http://h", found{"http://h/", "http://h"}},
		{urlTag, "http://h:8080", found{"http://h:8080/"}},
		{urlTag, "/", found{"http://h/", "http://h", "http://other/", "http://h:8080/"}},
		{urlTag, "/café", found{"http://h/caf%c3%a9"}},
		{urlTag, "http://h/caf%C3%A9?", found{"http://h/caf%c3%a9"}},
		{urlTag, keys[13], found{keys[13]}},
		{
			urlTag, "/" + strings.Repeat("long/", 60) + "?" + strings.Repeat("y", 300),
			found{keys[14]},
		},
		{prefixTag, "/products",
			found{"https://h/products", "http://h/products?page=2", "http://h/products/",
				"http://h/products/1",
				"http://h/products/1/reviews?x", "http://other/products/1"}},
		{prefixTag, "/products/",
			found{"https://h/products", "http://h/products?page=2", "http://h/products/",
				"http://h/products/1",
				"http://h/products/1/reviews?x", "http://other/products/1"}},
		{
			prefixTag, "/products/1", found{
				"http://h/products/1", "http://h/products/1/reviews?x", "http://other/products/1",
			},
		},
		{prefixTag, "/a/b/c/d/e/f/g/h", found{"http://h/a/b/c/d/e/f/g/h/i"}},
		{prefixTag, "/" + strings.Repeat("w", 300), found{keys[15]}},
		{prefixTag, "http://other", found{"http://other/", "http://other/products/1"}},
		{prefixTag, "https://other/", found{"http://other/", "http://other/products/1"}},
	} {
		tag, err := c.purge(c.what)
		if err != nil || tag == "" || len(tag) > longestTag {
			t.Errorf("%q: %q, %v", c.what, tag, err)
			continue
		}
		var got found
		for _, key := range keys {
			if slices.Contains(tagsOf(key), tag) {
				got = append(got, key)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %q\nwant %q", c.what, got, c.want)
		}
	}
}

func TestPurgeOfEverything(t *testing.T) {
	if tag, err := prefixTag("/"); tag != "" || err != nil {
		t.Errorf("%q, %v", tag, err)
	}
}

func TestPurgeOfWhatCantBe(t *testing.T) {
	for _, c := range []struct {
		purge func(string) (string, error)
		what  string
		says  string
	}{
		{urlTag, "", "neither a path"},
		{urlTag, "products", "neither a path"},
		{urlTag, "h/products", "neither a path"},
		{urlTag, "ftp://h/", "neither a path"},
		{urlTag, "//h/products", "could be a host"},
		{urlTag, "/a#b", "fragment"},
		{urlTag, "/a\x1fb", "control"},
		{urlTag, "http:///a", "no host"},
		{urlTag, "http://me@h/a", "no host"},
		{urlTag, "http://h:x/a", "no host"},
		{prefixTag, "", "neither a path"},
		{prefixTag, "products", "neither a path"},
		{prefixTag, "//", "could be a host"},
		{prefixTag, "/products?x", "has a query"},
		{prefixTag, "http://h/?x", "has a query"},
		{prefixTag, "http://h/products", "give the path alone"},
		{prefixTag, "/1/2/3/4/5/6/7/8/9", "9 segments"},
	} {
		if tag, err := c.purge(c.what); tag != "" || err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %q, %v; want an error that says %q", c.what, tag, err, c.says)
		}
	}
}

func TestSurrogateTags(t *testing.T) {
	long := strings.Repeat("k", 255)
	for _, c := range []struct {
		name string
		h    http.Header
		want []string
	}{
		{"none", http.Header{}, nil},
		{"empty", http.Header{"Cache-Tag": {" , ,"}, "Surrogate-Key": {"  "}}, nil},
		{"commas", http.Header{"Cache-Tag": {"a, b c,a", "d"}}, []string{"sa", "sb c", "sd"}},
		{"spaces", http.Header{"Surrogate-Key": {" a  b\ta", "c,d"}}, []string{"sa", "sb", "sc,d"}},
		{
			"both", http.Header{"Cache-Tag": {"a"}, "Surrogate-Key": {"a b A"}},
			[]string{"sa", "sb", "sA"},
		},
		{
			"long", http.Header{"Cache-Tag": {long + "," + long + "2"}},
			[]string{surrogateTag(long), surrogateTag(long + "2")},
		},
	} {
		got, ok := surrogateTags(c.h)
		if !ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, ok, c.want)
		}
	}
	if a, b := surrogateTag(long), surrogateTag(long+"2"); a == b || len(a) > longestTag ||
		len(b) > longestTag {
		t.Errorf("tags of long keys: %q, %q", a, b)
	}
	hashed := map[string]bool{}
	for i := range 1000 {
		hashed[surrogateTag(fmt.Sprint(long, i))] = true
	}
	if len(hashed) != 1000 {
		t.Errorf("1000 long keys have %d tags", len(hashed))
	}
	if surrogateTag(" a ") != surrogateTag("a") {
		t.Error("a key with space around it is another one")
	}
}

// Nobody can write a surrogate key that equals a tag of another kind, not even a hashed one.
func TestTagsOfKindsAreApart(t *testing.T) {
	long := strings.Repeat("k", 300)
	hashed := surrogateTag(long)
	if surrogateTag(hashed[1:]) == hashed || surrogateTag(hashed) == hashed {
		t.Error("a key has the tag of another one, which is hashed")
	}
	for _, tag := range tagsOf("http://h/a/" + long) {
		for _, key := range []string{tag, tag[1:], long} {
			if surrogateTag(key) == tag {
				t.Errorf("surrogate key %q has the tag %q", key, tag)
			}
		}
	}
}

func TestSurrogateTagsAreNeverSomeOnly(t *testing.T) {
	h := http.Header{}
	for i := range mostSurrogates {
		h.Add("Surrogate-Key", fmt.Sprint("k", i))
	}
	tags, ok := surrogateTags(h)
	if own := tagsOf("http://h/1/2/3/4/5/6/7/8/9"); !ok || len(tags) != mostSurrogates ||
		len(tags)+len(own) > 64 {
		t.Errorf("%d and %d tags, %v; want 64 at most", len(tags), len(own), ok)
	}
	h.Add("Surrogate-Key", "k0")
	if _, ok = surrogateTags(h); !ok {
		t.Error("a key that is there twice is one too many")
	}
	h.Add("Cache-Tag", "another")
	if tags, ok = surrogateTags(h); ok || tags != nil {
		t.Errorf("one too many: %d tags, %v", len(tags), ok)
	}
}

// FuzzTags shows that a resource with a key can be purged by its URL and by each prefix, and that
// the store accepts all tags.
func FuzzTags(f *testing.F) {
	f.Add("shop.example", "/a/b/c?x")
	f.Add("h", "//a%2F%zz/\xff?")
	f.Add("h", strings.Repeat("/a", 200)+"?#")
	f.Fuzz(func(t *testing.T, host, uri string) {
		r := readRequest("GET " + uri + " HTTP/1.1\r\nHost: " + host)
		if r == nil || len(uri) > 4096 { // the loop below is slow with thousands of slashes
			return
		}
		key := keyer{}.key(r)
		if key == "" {
			return
		}
		tags := tagsOf(key)
		if len(tags) > mostURLTags {
			t.Fatalf("%q: %d tags", key, len(tags))
		}
		for _, tag := range tags {
			if tag == "" || len(tag) > longestTag {
				t.Fatalf("%q: tag %q", key, tag)
			}
		}
		url, _, _ := strings.Cut(key, keySeparator)
		url = strings.ReplaceAll(url, "#", "%23")
		if tag, err := urlTag(url); err != nil || !slices.Contains(tags, tag) {
			t.Fatalf("%q: Purge finds tag %q, %v, not one of %q", key, tag, err, tags)
		}
		path, _, _ := strings.Cut(
			normalURI(strings.TrimPrefix(url[len("http://"):], strings.ToLower(r.Host))), "?")
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
			return
		}
		for prefix := path; prefix != ""; prefix = prefix[:strings.LastIndexByte(prefix, '/')] {
			tag, err := prefixTag(prefix)
			if err == nil && tag != "" && !slices.Contains(tags, tag) {
				t.Fatalf("%q: PurgePrefix(%q) finds tag %q, not one of %q", key, prefix, tag, tags)
			}
		}
	})
}
