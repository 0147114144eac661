package middleware

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestStoredHeader(t *testing.T) {
	for _, c := range []struct {
		name string
		in   http.Header
		drop []string
		want http.Header
	}{
		{"nothing", nil, nil, http.Header{}},
		{"what stays",
			http.Header{
				"Etag": {`"1"`}, "Foo": {"1", "2"}, "Empty": {""}, "Content-Length": {"3"},
				"Set-Cookie": {"a=b"},
			}, nil,
			http.Header{
				"Etag": {`"1"`}, "Foo": {"1", "2"}, "Empty": {""}, "Content-Length": {"3"},
				"Set-Cookie": {"a=b"},
			}},
		{"for one connection",
			http.Header{"Connection": {"close"}, "Keep-Alive": {"1"}, "Proxy-Connection": {"1"},
				"Proxy-Authenticate": {"1"}, "Proxy-Authentication-Info": {"1"},
				"Proxy-Authorization": {"1"}, "Te": {"1"}, "Trailer": {"A"},
				"Transfer-Encoding": {"chunked"}, "Upgrade": {"1"}, "Foo": {"1"}}, nil,
			http.Header{"Foo": {"1"}}},
		{"named by Connection",
			http.Header{
				"Connection": {"a, B", "x-c ,"}, "A": {"1"}, "B": {"1"}, "X-C": {"1"}, "D": {"1"},
			}, nil,
			http.Header{"D": {"1"}}},
		{
			"named by a connection in small letters",
			http.Header{"connection": {"a"}, "A": {"1"}, "D": {"1"}}, nil, http.Header{"D": {"1"}},
		},
		{
			"dropped", http.Header{"Set-Cookie": {"a=b"}, "D": {"1"}}, []string{"set-cookie"},
			http.Header{"D": {"1"}},
		},
		{"age", http.Header{"Age": {"7"}, "age": {"8"}, "D": {"1"}}, nil, http.Header{"D": {"1"}}},
		{
			"names as they came", http.Header{"ETag": {`"1"`}, "foo": {"2"}, "Foo": {"1"}}, nil,
			http.Header{"Etag": {`"1"`}, "Foo": {"1", "2"}},
		},
		{
			"no names",
			http.Header{
				"": {"1"}, "a b": {"1"}, "a:": {"1"}, http.TrailerPrefix + "Sum": {"1"},
				"a\r\nb": {"1"},
			}, nil, http.Header{},
		},
		{
			"no values", http.Header{"Foo": {}, "Bar": nil, "Date": nil, "Content-Type": nil}, nil,
			http.Header{"Content-Type": {}},
		},
		{
			"values that can't be sent", http.Header{"Foo": {" a\r\nb\x00c\t", "\xff\tü"}}, nil,
			http.Header{"Foo": {"a  b c", "\xff\tü"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.in.Clone()
			got := storedHeader(c.in, c.drop)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			for name, values := range got {
				got[name] = append(values, "more")
				if len(values) > 0 {
					values[0] = "changed"
				}
			}
			for name, values := range got {
				if i := slices.Index(values, "more"); i != len(values)-1 {
					t.Errorf("%s: another field's values were written over: %q", name, values)
				}
			}
			if !reflect.DeepEqual(c.in, before) {
				t.Errorf("the original is %q now", c.in)
			}
		})
	}
}

func TestUpdated(t *testing.T) {
	stored := http.Header{
		"Etag": {`"1"`}, "Last-Modified": {"Wed, 01 Jan 2020 00:00:00 GMT"},
		"Date":         {"Thu, 02 Jan 2020 00:00:00 GMT"},
		"Content-Type": {"text/plain"}, "Content-Encoding": {"gzip"}, "Content-Length": {"4"},
		"Content-Md5":   {"m"},
		"Content-Range": {"r"}, "Content-Digest": {"d"}, "Cache-Control": {"max-age=1"},
		"Foo": {"1", "2"}, "Bar": {"1"},
	}
	from304 := http.Header{
		"ETag": {`W/"1"`}, "Last-Modified": {"Fri, 03 Jan 2020 00:00:00 GMT"},
		"Date":         {"Sat, 04 Jan 2020 00:00:00 GMT"},
		"Content-Type": {"text/html"}, "Content-Encoding": {"br"}, "Content-Length": {"0"},
		"Content-Md5": {"n"}, "Content-Range": {"s"},
		"Content-Digest": {"e"}, "Cache-Control": {"max-age=2"}, "Foo": {"3"}, "New": {"1"},
		"Age": {"9"}, "Set-Cookie": {"a=b"},
		"Connection": {"hop"}, "Hop": {"1"}, "Transfer-Encoding": {"chunked"},
	}
	want := maps.Clone(stored)
	for name, value := range map[string]string{"Last-Modified": "Fri, 03 Jan 2020 00:00:00 GMT",
		"Date":         "Sat, 04 Jan 2020 00:00:00 GMT",
		"Content-Type": "text/html", "Cache-Control": "max-age=2", "Foo": "3", "New": "1"} {
		want[name] = []string{value}
	}
	res := &response{
		key: "k", status: 200, header: stored, body: []byte("body"), age: time.Second,
		mustRevalidate: true,
	}
	before := *res
	before.header = stored.Clone()
	got := res.updated(from304, []string{"Set-Cookie"})
	if got == nil {
		t.Fatal("it is about another representation")
	}
	if !reflect.DeepEqual(got.header, want) {
		t.Errorf("header\n     %q\nwant %q", got.header, want)
	}
	if got.key != "k" || got.status != 200 || string(got.body) != "body" || !got.mustRevalidate {
		t.Errorf("%+v", got)
	}
	if !reflect.DeepEqual(*res, before) {
		t.Errorf("what others read has been changed: %+v", res)
	}
	if bare := (&response{status: 200}).updated(http.Header{"Foo": {"1"}, "Content-Type": nil},
		nil); !reflect.DeepEqual(bare.header, http.Header{"Foo": {"1"}}) {
		t.Errorf("a response without a header has %q", bare.header)
	}
}

func TestUpdatedByAnother(t *testing.T) {
	const early, late = "Wed, 01 Jan 2020 00:00:00 GMT", "Fri, 03 Jan 2020 00:00:00 GMT"
	fields := func(tag, modified string) http.Header {
		h := http.Header{}
		if tag != "" {
			h["Etag"] = []string{tag}
		}
		if modified != "" {
			h["Last-Modified"] = []string{modified}
		}
		return h
	}
	for _, c := range []struct {
		stored, from304 http.Header
		same            bool
	}{
		{fields(`"1"`, ""), fields(`"1"`, ""), true},
		{fields(`"1"`, ""), fields(`"2"`, ""), false},
		// A weak tag doesn't prove that the strong ones are equal.
		{fields(`W/"1"`, ""), fields(`"1"`, ""), false},
		{fields(`"1"`, ""), fields(`W/"1"`, ""), true},
		{fields(`W/"1"`, ""), fields(`W/"1"`, ""), true},
		{fields(`W/"1"`, ""), fields(`W/"2"`, ""), false},
		{fields(`"1"`, early), fields(`"1"`, late), true}, // the tag decides
		{fields(`"1"`, early), fields(`"2"`, early), false},
		{fields(`"1"`, early), fields("", early), true},
		{fields(`"1"`, early), fields("", late), false},
		{fields("", early), fields("", early), true},
		{fields("", early), fields("", "Wednesday, 01-Jan-20 00:00:00 GMT"), true},
		{fields("", early), fields("", late), false},
		{fields("", early), fields("", "never"), true},
		{fields("", early), fields("", ""), true},
		{fields(`"1"`, ""), fields("", late), true},
		{fields("", ""), fields("", ""), true},
	} {
		res := &response{status: 200, header: c.stored}
		if got := res.updated(c.from304, nil); (got != nil) != c.same {
			t.Errorf("%q by %q: %v, want %v", c.stored, c.from304, got != nil, c.same)
		}
	}
}

func TestValidators(t *testing.T) {
	const modified = "Wed, 01 Jan 2020 00:00:00 GMT"
	client := http.Header{"If-Match": {"a"}, "If-None-Match": {"b", "c"},
		"If-Modified-Since": {modified}, "If-Unmodified-Since": {modified},
		"If-Range": {"d"}, "Range": {"bytes=0-1"}, "Accept": {"*/*"}}
	for _, c := range []struct {
		name string
		res  *response
		want http.Header
	}{
		{"no response", nil, http.Header{}},
		{"no validators", &response{header: http.Header{"Date": {modified}}}, http.Header{}},
		{
			"tag", &response{header: http.Header{"Etag": {`W/"1"`}}},
			http.Header{"If-None-Match": {`W/"1"`}},
		},
		{
			"date", &response{header: http.Header{"Last-Modified": {modified}}},
			http.Header{"If-Modified-Since": {modified}},
		},
		{"both", &response{header: http.Header{"Etag": {`"1"`}, "Last-Modified": {modified}}},
			http.Header{"If-None-Match": {`"1"`}, "If-Modified-Since": {modified}}},
		{
			"no date after all", &response{header: http.Header{"Last-Modified": {"yesterday"}}},
			http.Header{},
		},
	} {
		h := client.Clone()
		c.want["Accept"] = []string{"*/*"}
		if c.res.validators(&http.Request{Header: h}); !reflect.DeepEqual(h, c.want) {
			t.Errorf("%s: %q, want %q", c.name, h, c.want)
		}
	}
}
