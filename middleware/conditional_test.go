package middleware

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const (
	day1      = "Wed, 01 Jan 2020 00:00:00 GMT"
	day2      = "Thu, 02 Jan 2020 00:00:00 GMT"
	day2Later = "Thu, 02 Jan 2020 00:00:01 GMT"
	day3      = "Fri, 03 Jan 2020 00:00:00 GMT"
)

func TestAnswer(t *testing.T) {
	type fields = map[string]string
	tagged := fields{"Etag": `"1"`}
	dated := fields{"Last-Modified": day2, "Date": day3}
	both := fields{"Etag": `"1"`, "Last-Modified": day2, "Date": day3}
	const whole, notModified, part = answerWhole, answerNotModified, answerRange
	for _, c := range []struct {
		name    string
		stored  fields
		request fields
		want    answer
	}{
		{"nothing asked", both, nil, whole},
		{"tag", tagged, fields{"If-None-Match": `"1"`}, notModified},
		{"another tag", tagged, fields{"If-None-Match": `"2"`}, whole},
		{"first of many", tagged, fields{"If-None-Match": `"1", "2", "3"`}, notModified},
		{"middle one", tagged, fields{"If-None-Match": `"2","1","3"`}, notModified},
		{"last one", tagged, fields{"If-None-Match": `"2" ,, "3", W/"1"`}, notModified},
		{"none of many", tagged, fields{"If-None-Match": `"2", "11", "1 "`}, whole},
		{
			"tag with a comma", fields{"Etag": `"1,2"`}, fields{"If-None-Match": `"3", "1,2"`},
			notModified,
		},
		{
			"half a tag with a comma", fields{"Etag": `"2"`}, fields{"If-None-Match": `"1,"2"`},
			whole,
		},
		{"weak request", tagged, fields{"If-None-Match": `W/"1"`}, notModified},
		{"weak response", fields{"Etag": `W/"1"`}, fields{"If-None-Match": `"1"`}, notModified},
		{"both weak", fields{"Etag": `W/"1"`}, fields{"If-None-Match": `W/"1"`}, notModified},
		{"weak in small letters", tagged, fields{"If-None-Match": `w/"1"`}, whole},
		{"obs-text", fields{"Etag": "\"\xfc\""}, fields{"If-None-Match": "\"\xfc\""}, notModified},
		{"no quotes", fields{"Etag": "abc"}, fields{"If-None-Match": "abc"}, notModified},
		{"quotes on one side", fields{"Etag": "abc"}, fields{"If-None-Match": `"abc"`}, whole},
		{"no end", tagged, fields{"If-None-Match": `"1`}, whole},
		{"star", tagged, fields{"If-None-Match": "*"}, notModified},
		{"star without a tag", nil, fields{"If-None-Match": " * "}, notModified},
		{"star among others", tagged, fields{"If-None-Match": `"2", *`}, whole},
		{"empty", tagged, fields{"If-None-Match": ""}, whole},
		{"empty, without a tag", nil, fields{"If-None-Match": ""}, whole},
		{"no tag", dated, fields{"If-None-Match": `"1"`}, whole},

		{
			"tag before date", both, fields{"If-None-Match": `"1"`, "If-Modified-Since": day1},
			notModified,
		},
		{
			"another tag before date", both,
			fields{"If-None-Match": `"2"`, "If-Modified-Since": day3}, whole,
		},

		{"same date", dated, fields{"If-Modified-Since": day2}, notModified},
		{"later", dated, fields{"If-Modified-Since": day3}, notModified},
		{"earlier", dated, fields{"If-Modified-Since": day1}, whole},
		{
			"old form", dated, fields{"If-Modified-Since": "Thursday, 02-Jan-20 00:00:00 GMT"},
			notModified,
		},
		{
			"oldest form", dated, fields{"If-Modified-Since": "Thu Jan  2 00:00:00 2020"},
			notModified,
		},
		{"no date", dated, fields{"If-Modified-Since": "yesterday"}, whole},
		{"by Date, later", fields{"Date": day2}, fields{"If-Modified-Since": day3}, notModified},
		{"by Date, earlier", fields{"Date": day2}, fields{"If-Modified-Since": day1}, whole},
		{"by nothing", nil, fields{"If-Modified-Since": day3}, whole},
		{
			"broken Last-Modified", fields{"Last-Modified": "0", "Date": day2},
			fields{"If-Modified-Since": day3}, whole,
		},

		{"range", tagged, fields{"Range": "bytes=0-1"}, part},
		{"range that isn't there", tagged, fields{"Range": "bytes=10-"}, part}, // 416
		{"broken range", tagged, fields{"Range": "bytes=x"}, whole},
		{"other units", tagged, fields{"Range": "lines=0-1"}, whole},
		{"more than all", tagged, fields{"Range": "bytes=0-,0-"}, whole},
		{
			"range, if matched", tagged, fields{"Range": "bytes=0-1", "If-None-Match": `"1"`},
			notModified,
		},
		{
			"range, if not matched", tagged, fields{"Range": "bytes=0-1", "If-None-Match": `"2"`},
			part,
		},
		{"no ranges here", fields{"Accept-Ranges": "none"}, fields{"Range": "bytes=0-1"}, whole},

		{"if-range", tagged, fields{"Range": "bytes=0-1", "If-Range": `"1"`}, part},
		{"if-range of another", tagged, fields{"Range": "bytes=0-1", "If-Range": `"2"`}, whole},
		{
			"if-range, weak request", tagged, fields{"Range": "bytes=0-1", "If-Range": `W/"1"`},
			whole,
		},
		{
			"if-range, weak response", fields{"Etag": `W/"1"`},
			fields{"Range": "bytes=0-1", "If-Range": `"1"`}, whole,
		},
		{
			"if-range, both weak", fields{"Etag": `W/"1"`},
			fields{"Range": "bytes=0-1", "If-Range": `W/"1"`}, whole,
		},
		{"if-range by date", dated, fields{"Range": "bytes=0-1", "If-Range": day2}, part},
		{"if-range by a later date", dated, fields{"Range": "bytes=0-1", "If-Range": day3}, whole},
		{
			"if-range by a date that is weak", fields{"Last-Modified": day2, "Date": day2},
			fields{"Range": "bytes=0-1", "If-Range": day2}, whole,
		},
		{
			"if-range by a date just strong", fields{"Last-Modified": day2, "Date": day2Later},
			fields{"Range": "bytes=0-1", "If-Range": day2}, part,
		},
		{
			"if-range by a date without Date", fields{"Last-Modified": day2},
			fields{"Range": "bytes=0-1", "If-Range": day2}, whole,
		},
		{"if-range by nothing", tagged, fields{"Range": "bytes=0-1", "If-Range": ""}, whole},
		{"if-range without a range", tagged, fields{"If-Range": `"1"`}, whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := func(fields map[string]string) http.Header {
				h := http.Header{}
				for name, value := range fields {
					h[name] = []string{value}
				}
				return h
			}
			res := &response{status: 200, header: header(c.stored), body: []byte("0123456789")}
			r := &http.Request{Method: "GET", Header: header(c.request)}
			if got := res.answer(r); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
			for _, method := range []string{"HEAD", "POST"} {
				want := c.want
				if want == part || method == "POST" {
					want = whole
				}
				if got := res.answer(&http.Request{Method: method, Header: r.Header}); got != want {
					t.Errorf("%s: %d, want %d", method, got, want)
				}
			}
			for _, status := range []int{206, 301, 404, 410} {
				other := *res
				other.status = status
				if got := other.answer(r); got != whole {
					t.Errorf("status %d: %d", status, got)
				}
			}
		})
	}
}

func TestAnswerToLines(t *testing.T) {
	res := &response{
		status: 200, header: http.Header{"Etag": {`"1"`}, "Last-Modified": {day2}},
		body: []byte("0123456789"),
	}
	for _, c := range []struct {
		h    http.Header
		want answer
	}{
		{http.Header{"If-None-Match": {`"2"`, `"1"`}}, answerNotModified},
		{http.Header{"If-None-Match": {`"2"`, "*"}}, answerWhole},
		{http.Header{"If-None-Match": {"*", `"2"`}}, answerWhole},
		// The field is ignored, because it is not one date.
		{http.Header{"If-Modified-Since": {day2, day2}}, answerWhole},
		{http.Header{"Range": {"bytes=0-1", "bytes=2-3"}}, answerWhole},
		{http.Header{"Range": {"bytes=0-1"}, "If-Range": {`"1"`, `"1"`}}, answerWhole},
	} {
		if got := res.answer(&http.Request{Method: "GET", Header: c.h}); got != c.want {
			t.Errorf("%q: %d, want %d", c.h, got, c.want)
		}
	}
	for _, whole := range []response{
		{status: 200},
		{status: 200, body: []byte("0123456789"), trailer: http.Header{"Sum": {"1"}}},
	} {
		if got := whole.answer(&http.Request{
			Method: "GET", Header: http.Header{"Range": {"bytes=0-1"}},
		}); got != answerWhole {
			t.Errorf("%+v: %d", whole, got)
		}
	}
}

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		field string
		want  []span
		ok    bool
	}{
		{"bytes=0-0", []span{{0, 1}}, true},
		{"bytes=0-9", []span{{0, 10}}, true},
		{"Bytes=0-99", []span{{0, 10}}, true},
		{"bytes=9-", []span{{9, 10}}, true},
		{"bytes=-3", []span{{7, 10}}, true},
		{"bytes=-10", []span{{0, 10}}, true},
		{"bytes=-99", []span{{0, 10}}, true},
		{" bytes=1-2 , 4-5,,-1 ", []span{{1, 3}, {4, 6}, {9, 10}}, true},
		{"bytes=10-", nil, true},
		{"bytes=10-20", nil, true},
		{"bytes=-0", nil, true},
		{"bytes=20-,1-1", []span{{1, 2}}, true},
		{"bytes=999999999999999-", nil, true},
		{"bytes=0-999999999999999", []span{{0, 10}}, true},
		{"bytes=9999999999999999-", nil, false},
		{"bytes=2-1", nil, false},
		{"bytes=1-2,2-1", nil, false},
		{"bytes=", nil, false},
		{"bytes=,", nil, false},
		{"bytes=-", nil, false},
		{"bytes=--1", nil, false},
		{"bytes=+1-2", nil, false},
		{"bytes=1 - 2", nil, false},
		{"bytes=1", nil, false},
		{"bytes=a-b", nil, false},
		{"bytes=1-b", nil, false},
		{"bytes", nil, false},
		{"bytes 0-1", nil, false},
		{"bytes =0-1", nil, false},
		{"", nil, false},
		{"bytes=" + strings.Repeat("1-1,", mostRanges), repeated(span{1, 2}, mostRanges), true},
		{"bytes=" + strings.Repeat("1-1,", mostRanges+1), nil, false},
	} {
		got, ok := parseRange(c.field, 10)
		if ok != c.ok || ok && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %v, %v; want %v, %v", c.field, got, ok, c.want, c.ok)
		}
	}
}

func repeated(s span, n int) (all []span) {
	for range n {
		all = append(all, s)
	}
	return all
}

// FuzzAnswer shows that no condition causes a panic, and that no range exceeds the body.
func FuzzAnswer(f *testing.F) {
	f.Add("GET", `"1"`, day2, day3, `W/"1", "2"`, day2, "bytes=0-1,-1", `"1"`)
	f.Add("HEAD", "", "", "", "*", "", "bytes=18446744073709551615-", "")
	f.Add("GET", `W/`, "", day3, `W/`, "", `bytes=-0,9-`, "W/")
	f.Fuzz(func(t *testing.T, method, tag, modified, date, match, since, ranges, ifRange string) {
		res := &response{
			status: 200,
			header: http.Header{"Etag": {tag}, "Last-Modified": {modified}, "Date": {date}},
			body:   []byte("0123456789"),
		}
		h := http.Header{}
		for name, value := range map[string]string{
			"If-None-Match": match, "If-Modified-Since": since, "Range": ranges,
			"If-Range": ifRange,
		} {
			if value != "" {
				h[name] = []string{value}
			}
		}
		got := res.answer(&http.Request{Method: method, Header: h})
		if got != answerWhole && method != "GET" && method != "HEAD" {
			t.Fatalf("%d for %s", got, method)
		}
		if got == answerNotModified && match == "" && since == "" {
			t.Fatal("304, though nobody asked")
		}
		if got != answerRange {
			return
		}
		spans, ok := parseRange(ranges, len(res.body))
		if !ok {
			t.Fatalf("%q is no range", ranges)
		}
		for _, s := range spans {
			if s.start < 0 || s.end <= s.start || s.end > len(res.body) {
				t.Fatalf("%q: %v", ranges, s)
			}
			if want := fmt.Sprintf("bytes %d-%d/10", s.start, s.end-1); s.contentRange(10) != want {
				t.Fatalf("%q, want %q", s.contentRange(10), want)
			}
		}
	})
}
