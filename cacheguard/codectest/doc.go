// Package codectest is the conformance suite for implementations of [cacheguard.Codec]. When a case
// fails, it says what it protects.
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
// [Cases] returns the same cases one by one, for a codec that is broken on purpose and must fail.
// [Refuses] is what the case "garbage" does; use it for a codec that must refuse bytes for many
// types.
package codectest
