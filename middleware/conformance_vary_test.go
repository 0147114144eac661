package middleware_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/middleware"
)

const varied = fresh + ` | Vary: Foo`

// varyShows test responses that were selected by fields of the request: RFC 9111, section 4.1.
func varyShows() []show {
	three := fresh + ` | Vary: Foo, Bar, Baz`
	languages := fresh + ` | Vary: Accept-Language`
	shows := []show{
		twice("4.1/same_value", varied, "hit", "Foo: 1", "Foo: 1"),
		twice("4.1/other_value", varied, "run", "Foo: 1", "Foo: 2"),
		twice("4.1/absent_then_there", varied, "run", "", "Foo: 1"),
		twice("4.1/there_then_absent", varied, "run", "Foo: 1", ""),
		twice("4.1/absent_both_times", varied, "hit"),
		twice("4.1/empty_is_not_absent", varied, "run", "Foo: ", ""),
		twice("4.1/names_know_no_case", fresh+` | Vary: fOO`, "run", "Foo: 1", "Foo: 2"),
		twice("4.1/other_fields_do_not_matter", varied, "hit", "Foo: 1 | Bar: 2",
			"Foo: 1 | Bar: 3"),
		twice("4.1/values_are_not_mixed_up", fresh+` | Vary: Foo, Bar`, "run", "Foo: 1 | Bar: 2",
			"Foo: 2 | Bar: 1"),
		twice("4.1/value_of_one_is_not_the_other", fresh+` | Vary: Foo, Bar`, "run",
			"Foo: 1", "Bar: 1"),
		twice("4.1/three_same", three, "hit", "Foo: 1 | Bar: abc | Baz: 7",
			"Foo: 1 | Bar: abc | Baz: 7"),
		twice("4.1/three_one_differs", three, "run", "Foo: 1 | Bar: abc | Baz: 7",
			"Foo: 1 | Bar: abcd | Baz: 7"),
		twice("4.1/three_in_another_order", three, "hit", "Foo: 1 | Bar: abc | Baz: 7",
			"Baz: 7 | Bar: abc | Foo: 1"),
		twice("4.1/three_one_absent", three, "hit", "Foo: 1 | Baz: 7", "Foo: 1 | Baz: 7"),
		twice("4.1/lines_of_vary", fresh+` | Vary: Foo | Vary: Bar`, "run", "Foo: 1 | Bar: 1",
			"Foo: 1 | Bar: 2"),
		twice("4.1/cookie", fresh+` | Vary: Cookie`, "run", "Cookie: a=1", "Cookie: a=2"),

		twice("4.1/blanks_inside_matter", varied, "run", "Foo: 1 2", "Foo: 12"),
		twice("4.1/case_of_unknown_fields_matters", varied, "run", "Foo: a", "Foo: A"),
		twice("4.1/order_in_unknown_fields_matters", varied, "run", "Foo: 1, 2", "Foo: 2, 1"),
		twice("4.1/weights_of_languages_matter", languages, "run", "Accept-Language: en, de",
			"Accept-Language: en, de;q=0.5"),
		twice("4.1/refused_language_matters", languages, "run", "Accept-Language: en, de;q=0",
			"Accept-Language: en"),
		twice("4.1/codings_differ", fresh+` | Vary: Accept-Encoding`, "run",
			"Accept-Encoding: gzip", "Accept-Encoding: br"),

		script("4.1/variants_are_kept", varied, "| Foo: 1 -> run", "| Foo: 2 -> run", "-> run",
			"| Foo: 1 -> hit | body / 1",
			"| Foo: 2 -> hit | body / 2", "-> hit | body / 3"),
		script("4.1/variants_vary_by_different_fields",
			fresh+` | Vary: Foo || `+fresh+` | Vary: Foo, Bar`,
			"| Foo: 1 | Bar: 1 -> run", "| Foo: 2 | Bar: 1 -> run", "| Foo: 2 | Bar: 2 -> run",
			"| Foo: 1 | Bar: 3 -> hit | body / 1",
			"| Foo: 2 | Bar: 1 -> hit | body / 2", "| Foo: 2 | Bar: 2 -> hit | body / 3"),
		script("4.1/omitted_vary_hides_no_variant", varied+` || `+fresh, "| Foo: 1 -> run",
			"-> run | body / 2",
			"| Foo: 1 -> hit | body / 1", "-> hit | body / 2"),
		script("4.1/same_lifetime_for_each_variant",
			varied+` || Cache-Control: max-age=0 | Vary: Foo`, "| Foo: 1 -> run",
			"| Foo: 2 -> run", "| Foo: 2 -> run", "| Foo: 1 -> hit"),
		script("4.1/head_of_a_variant", varied, "| Foo: 1 -> run", "HEAD | Foo: 1 -> hit",
			"HEAD | Foo: 2 -> run"),
	}
	alike := []show{
		twice("4.1/lines_are_combined", varied, "hit", "Foo: 1, 2", "Foo: 1 | Foo: 2"),
		twice("4.1/blanks_do_not_matter", varied, "hit", "Foo: 1,2", "Foo:  1 ,  2 "),
		twice("4.1/order_of_languages", languages, "hit", "Accept-Language: en, de",
			"Accept-Language: de, en"),
		twice("4.1/case_of_languages", languages, "hit", "Accept-Language: en, de",
			"Accept-Language: eN, De"),
		twice("4.1/blanks_in_languages", languages, "hit", "Accept-Language: en, de",
			"Accept-Language: en ,   de"),
		twice("4.1/case_of_codings", fresh+` | Vary: Accept-Encoding`, "hit",
			"Accept-Encoding: gzip, br",
			"Accept-Encoding: BR,GZIP"),
		script("4.1/handler_sees_the_normal_form", languages,
			"| Accept-Language: EN ;q=0.50 , de | Accept-Language: en;q=0.5 -> "+
				"run | saw Accept-Language: de,en;q=0.5"),
	}
	for _, sh := range alike[:6] { // without the option a handler can tell them apart
		sh.name = strings.Replace(sh.name, "4.1/", "4.1/as_received/", 1)
		sh.ask = slices.Clone(sh.ask)
		sh.ask[1] = strings.Replace(sh.ask[1], "-> hit", "-> run", 1)
		shows = append(shows, sh)
	}
	shows = append(shows,
		with(middleware.Options{Normalize: []string{"foo", "Accept-Language", "Accept-Encoding"}},
			alike...)...)
	for i, star := range []string{
		`Vary: *`, `Vary: *, *`, `Vary: * | Vary: *`, `Vary: , *`, `Vary: | Vary: *`,
		`Vary: *, Foo`, `Vary: Foo, *`,
		`Vary: Foo | Vary: *`, `Vary: * | Vary: Foo`,
	} {
		shows = append(shows,
			twice(fmt.Sprint("4.1/star_never_matches/", i), fresh+` | `+star, "run", "Foo: 1",
				"Foo: 1"))
	}
	many := `Vary: Foo`
	for i := range 100 {
		many += fmt.Sprint(", F", i)
	}
	for i, unusable := range []string{
		`Vary: Foo *`, `Vary: Foo Bar`, `Vary: "Foo"`, `Vary: Foo: 1`, many,
	} {
		shows = append(shows,
			twice(fmt.Sprint("4.1/names_that_are_none_never_match/", i), fresh+` | `+unusable,
				"run",
				"Foo: 1",
				"Foo: 2"))
	}
	return shows
}
