// Package codectest is the conformance suite for implementations of [cacheguard.Codec]. The text of
// a failed case has the promise that the codec breaks.
//
// The test of a codec passes the codec to [Run], with values and bytes to try it with:
//
//	func TestConformance(t *testing.T) {
//		codectest.Run(t, codectest.Subject[Product]{
//			Codec:   mycodec.Codec[Product]{},
//			Values:  []Product{{}, {ID: "42", Tags: []string{"a", "b"}}},
//			Garbage: map[string][]byte{"a length that nothing backs": {0xff, 0xff}},
//		})
//	}
//
// [Cases] returns the same cases as a list. Use it to test that a codec that is broken on purpose
// fails. [Refuses] is the test of the case "garbage". If the codec is generic, call Refuses once
// for each type of values for which it must refuse the bytes.
package codectest
