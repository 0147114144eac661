// Package loss finds the part of a value that is lost when a codec encodes and decodes the value.
package loss

import (
	"bytes"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// mostDepth limits how deeply values are compared, because values can be cyclic.
const mostDepth = 16

// Field returns the path of the first part of a value that changed when the value was encoded and
// decoded, or "". Field only reads both values. If a type has an Equal method, that method decides.
// For instance, time.Time needs its Equal method. A slice or map without elements equals nil.
func Field(before, after any) string {
	path, lost := differs(reflect.ValueOf(before), reflect.ValueOf(after), mostDepth)
	if lost && path == "" {
		return "the value"
	}
	return strings.TrimPrefix(path, ".")
}

// differs builds the path only when it has found a difference, because usually there is no
// difference.
func differs(a, b reflect.Value, depth int) (path string, lost bool) {
	switch {
	case !a.IsValid() || !b.IsValid():
		return "", a.IsValid() != b.IsValid()
	case a.Type() != b.Type():
		return "", true
	case depth == 0:
		return "", false
	}
	if same, known := equal(a, b); known {
		return "", !same
	}
	depth--
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if path, lost := differs(a.Field(i), b.Field(i), depth); lost {
				return "." + a.Type().Field(i).Name + path, true
			}
		}
		return "", false
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return "", a.IsNil() != b.IsNil()
		}
		return differs(a.Elem(), b.Elem(), depth)
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return "", true
		}
		if a.Kind() == reflect.Slice && a.Type().Elem().Kind() == reflect.Uint8 {
			return "", !bytes.Equal(a.Bytes(), b.Bytes())
		}
		for i := range a.Len() {
			if path, lost := differs(a.Index(i), b.Index(i), depth); lost {
				return "[" + strconv.Itoa(i) + "]" + path, true
			}
		}
		return "", false
	case reflect.Map:
		if a.Len() != b.Len() {
			return "", true
		}
		for all := a.MapRange(); all.Next(); {
			if path, lost := differs(all.Value(), b.MapIndex(all.Key()), depth); lost {
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
