// Package loss finds the part of a value that is lost when a codec encodes and decodes the value.
package loss

import (
	"bytes"
	"math"
	"reflect"
	"strconv"
	"strings"
)

const (
	// mostDepth limits how deeply values are compared, because values can be cyclic.
	mostDepth = 16

	// mostParts limits how many parts are compared. If parts point to their parents, the walk can
	// reach the same part by very many paths.
	mostParts = 10_000
)

// Field returns the path of the first part of a value that changed when the value was encoded and
// decoded, or "". Field only reads both values. If a type has an Equal method, that method decides.
// For instance, time.Time needs its Equal method. A slice or map without elements equals nil.
//
// Field doesn't look into a struct with a lock or an atomic field, because other goroutines may be
// changing it, and a map that is changed meanwhile would end the process. It doesn't look into
// messages of Protocol Buffers either, because their fields have caches of the encoder.
func Field(before, after any) string {
	w := walk{left: mostParts}
	path, lost := w.differs(reflect.ValueOf(before), reflect.ValueOf(after), mostDepth)
	if lost && path == "" {
		return "the value"
	}
	return strings.TrimPrefix(path, ".")
}

// walk is one comparison.
type walk struct{ left int } // how many more parts are compared

// differs builds the path only when it has found a difference, because usually there is no
// difference.
func (w *walk) differs(a, b reflect.Value, depth int) (path string, lost bool) {
	switch {
	case !a.IsValid() || !b.IsValid():
		return "", a.IsValid() != b.IsValid()
	case a.Type() != b.Type():
		return "", true
	case depth == 0 || w.left == 0 || guarded(a.Type()):
		return "", false
	}
	w.left--
	if same, known := equal(a, b); known {
		return "", !same
	}
	depth--
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if path, lost := w.differs(a.Field(i), b.Field(i), depth); lost {
				return "." + a.Type().Field(i).Name + path, true
			}
		}
		return "", false
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return "", a.IsNil() != b.IsNil()
		}
		return w.differs(a.Elem(), b.Elem(), depth)
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return "", true
		}
		if a.Kind() == reflect.Slice && a.Type().Elem().Kind() == reflect.Uint8 {
			return "", !bytes.Equal(a.Bytes(), b.Bytes())
		}
		for i := range a.Len() {
			if path, lost := w.differs(a.Index(i), b.Index(i), depth); lost {
				return "[" + strconv.Itoa(i) + "]" + path, true
			}
		}
		return "", false
	case reflect.Map:
		if a.Len() != b.Len() {
			return "", true
		}
		for all := a.MapRange(); all.Next(); {
			if path, lost := w.differs(all.Value(), b.MapIndex(all.Key()), depth); lost {
				return "[...]" + path, true
			}
		}
		return "", false
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return "", a.IsNil() != b.IsNil()
	case reflect.Float32, reflect.Float64:
		return "", a.Float() != b.Float() && !(math.IsNaN(a.Float()) && math.IsNaN(b.Float()))
	}
	return "", !a.Equal(b)
}

// guarded reports whether a value of this type may be changed by other goroutines or by encoders.
func guarded(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	if _, message := reflect.PointerTo(t).MethodByName("ProtoReflect"); message {
		return true
	}
	for i := range t.NumField() {
		field := t.Field(i).Type
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if of := field.PkgPath(); of == "sync" || of == "sync/atomic" {
			return true
		}
		if t.Field(i).Type.Kind() == reflect.Struct && guarded(field) {
			return true
		}
	}
	return false
}

// equal uses the Equal method of the values' type, if it has one.
func equal(a, b reflect.Value) (same, known bool) {
	if !a.CanInterface() || a.Kind() == reflect.Pointer || a.Kind() == reflect.Interface {
		return false, false
	}
	m := a.MethodByName("Equal")
	if !m.IsValid() {
		return false, false
	}
	if t := m.Type(); t.NumIn() != 1 || t.In(0) != a.Type() || t.NumOut() != 1 ||
		t.Out(0).Kind() != reflect.Bool {
		return false, false
	}
	return m.Call([]reflect.Value{b})[0].Bool(), true
}
