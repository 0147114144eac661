package protocodec

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
)

var (
	errNil  = errors.New("protocodec: a nil message can't be stored")
	errType = errors.New("protocodec: V must be a generated message type, such as *pb.Product")
)

// Codec stores messages of type V, the pointer to a generated message. The zero Codec is ready to
// use, and safe for concurrent use.
type Codec[V proto.Message] struct{}

// Append appends the encoded message to dst. A nil message is an error.
func (Codec[V]) Append(dst []byte, m V) ([]byte, error) {
	if any(m) == nil || !m.ProtoReflect().IsValid() {
		return dst, errNil
	}
	out, err := proto.MarshalOptions{}.MarshalAppend(dst, m)
	if err != nil {
		return dst, fmt.Errorf("protocodec: %w", err)
	}
	return out, nil
}

// Decode returns a new message.
func (Codec[V]) Decode(src []byte) (V, error) {
	var none V
	m, err := blank[V]()
	if err != nil {
		return none, err
	}
	if err := (proto.UnmarshalOptions{NoLazyDecoding: true}).Unmarshal(src, m); err != nil {
		return none, fmt.Errorf("protocodec: %w", err)
	}
	return m, nil
}

// Name returns the name of the format and of the message's type. The wire format doesn't say the
// type.
func (Codec[V]) Name() string {
	m, err := blank[V]()
	if err != nil {
		return "protobuf"
	}
	return "protobuf " + string(m.ProtoReflect().Descriptor().FullName())
}

// blank returns a new message. It returns an error if V doesn't say the message's type, for example
// if V is proto.Message itself.
func blank[V proto.Message]() (m V, err error) {
	defer func() {
		if recover() != nil {
			// proto.Message itself has no type, and *dynamicpb.Message needs more than a nil
			// pointer.
			err = errType
		}
	}()
	return m.ProtoReflect().New().Interface().(V), nil
}
