// Package codectest is the conformance suite for implementations of cacheguard.Codec. Each case
// says what it protects when it fails.
//
// The test of a codec hands Run the codec, and values and bytes of its own to try it with:
//
//	func TestConformance(t *testing.T) {
//		codectest.Run(t, codectest.Subject[Product]{
//			Codec:   mycodec.Codec[Product]{},
//			Values:  []Product{{}, {ID: "42", Tags: []string{"a", "b"}}},
//			Garbage: map[string][]byte{"a length that nothing backs": {0xff, 0xff}},
//		})
//	}
//
// Cases has the same cases one by one, for a codec that is broken on purpose and must fail. Refuses
// is what the case "garbage" does, for codecs that have bytes to refuse for many types.
package codectest
