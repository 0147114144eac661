package msgpackcodec

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Codec stores values as MessagePack. The zero Codec is ready to use, and safe for concurrent use.
type Codec[V any] struct{}

// Append appends the encoded value to dst.
func (Codec[V]) Append(dst []byte, v V) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = dst, fmt.Errorf("msgpackcodec: encoding panicked: %v", p)
		}
	}()
	to := bytes.NewBuffer(dst)
	enc := msgpack.GetEncoder()
	enc.Reset(to)
	if err := enc.Encode(v); err != nil {
		return dst, err
	}
	msgpack.PutEncoder(enc) // an encoder that failed or panicked is not reused
	out = to.Bytes()
	if _, err := sound(out[len(dst):]); err != nil {
		return dst, err // a type with methods of its own may have written anything
	}
	return out, nil
}

// Decode returns the value that src holds.
func (Codec[V]) Decode(src []byte) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("msgpackcodec: decoding panicked: %v", p)
		}
		if err != nil {
			var zero V
			v = zero // no partly decoded value is returned
		}
	}()
	src, err = sound(src)
	if err != nil {
		return v, err
	}
	rest := bytes.NewReader(src)
	dec := msgpack.GetDecoder()
	dec.Reset(rest)
	if err := dec.Decode(&v); err != nil {
		return v, err
	}
	msgpack.PutDecoder(dec)
	if rest.Len() > 0 {
		return v, errTrailing // a type with methods of its own may have read too little
	}
	return v, nil
}

// Name returns the name of the format, "msgpack".
func (Codec[V]) Name() string { return "msgpack" }
