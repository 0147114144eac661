package cacheguard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/internal/budget"
	"github.com/cacheguard/cacheguard/internal/report"
)

var (
	// ErrNotFound means that the value does not exist at the origin, or did not exist there at the
	// last load. The cache remembers this for NegativeTTL, or as long as the load's Entry says. If
	// the value does not exist, a load must return ErrNotFound or an error that wraps it. Callers
	// get ErrNotFound with a zero value.
	ErrNotFound = errors.New("cacheguard: not found")

	// ErrPending means that a change may not have reached the store. This process repeats the
	// change until the store has it; in place of a Set or Update it repeats an invalidation of the
	// key. Until then this process serves no value that is older than the change. If the change was
	// a MarkStale, this process serves older values only as stale. Other processes may serve older
	// values. [Cache.Flush] waits until the store has all changes.
	ErrPending = errors.New("cacheguard: store does not have the change yet, it is repeated")

	// ErrClosed means that the cache is closed. If a load returns ErrClosed, for instance from
	// another cache, this says nothing about the origin, so other processes load without a pause.
	// The process of that load gives its callers this error, or a stale value, until the back-off
	// is over. A Refresh loads at once. While messages don't arrive, every call that has no stale
	// value loads at once, too.
	ErrClosed = errors.New("cacheguard: cache is closed")

	// ErrUnavailable means that the store is unavailable. Calls that may load return it only with
	// FailClosed. Peek returns it with FailOpen, too. It is also in the Result.Err of a stale
	// value.
	ErrUnavailable = errors.New("cacheguard: store is unavailable")

	// ErrOverloaded means that too many callers, loads or reads of the store already wait
	// (MaxWaiters, MaxLoads, Limiter). It also means that a load waited longer than LoadTimeout for
	// its slot, or for its permit of a fleet-wide limit.
	ErrOverloaded = budget.ErrOverloaded

	// ErrLeaseLost is the cause with which a load's context ends if another load has taken the
	// lease. Only loads see this error; their callers wait for the other load.
	ErrLeaseLost = errors.New("cacheguard: lease lost to another load")

	// ErrRecursion means that a load asked for the key that it loads.
	ErrRecursion = errors.New("cacheguard: a load asked for its own key")

	// ErrTooLarge means that a value was not stored because it is larger than MaxValueSize.
	ErrTooLarge = errors.New("cacheguard: value is too large to store")
)

// errGoexit is the error that callers get if the load called runtime.Goexit, which leaves neither a
// result nor an error.
var errGoexit = errors.New("cacheguard: load called runtime.Goexit")

// LoadError is the error of a load that failed in another process. Text has at most the first 256
// bytes of the text that ErrorText returned in that process. If the original error wraps one of the
// sentinels in [Options.Errors], or context.DeadlineExceeded, LoadError wraps it, too.
type LoadError struct {
	Key  string
	Text string
	is   []error
}

// Unwrap returns the sentinels that the original error wraps.
func (e *LoadError) Unwrap() []error { return e.is }

func (e *LoadError) Error() string {
	if e.Key == "" {
		return "cacheguard: load failed in another process: " + e.Text
	}
	return fmt.Sprintf("cacheguard: load of %s failed in another process: %s",
		report.QuoteKey(e.Key), e.Text)
}

// keyless returns the error of an event without the key. The key may be personal data, and
// observers decide by the event's own key whether they show it.
func keyless(err error) error {
	if e, ok := err.(*LoadError); ok {
		return &LoadError{Text: e.Text, is: e.is}
	}
	return err
}

// PanicError is the error of a load that panicked in this process. A panic of the codec or of
// Options.Empty, for the result of a load, counts as a panic of the load. Every caller that waited
// for it gets the PanicError. The panic itself doesn't reach callers. If the panic's value is an
// error, Unwrap returns it.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("cacheguard: load panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// wraps is errors.Is for the error of a load, on a goroutine where a panic would end the process or
// reach a caller. A load may panic with an error whose methods panic, such as a nil pointer. Then
// wraps returns false.
func wraps(err, target error) (is bool) {
	safely(func() { is = errors.Is(err, target) })
	return is
}

// KeyErrors has the keys for which a call failed, each with its error.
type KeyErrors map[string]error

func (e KeyErrors) Error() string {
	var b strings.Builder
	what := "keys"
	if len(e) == 1 {
		what = "key"
	}
	fmt.Fprintf(&b, "cacheguard: %d %s failed", len(e), what)
	for i, k := range e.keys() {
		if i == 5 {
			b.WriteString("; ...")
			break
		}
		fmt.Fprintf(&b, "; %s: %v", report.QuoteKey(k), e[k])
	}
	return b.String()
}

// Unwrap returns the errors in the order of their keys.
func (e KeyErrors) Unwrap() []error {
	errs := make([]error, 0, len(e))
	for _, k := range e.keys() {
		errs = append(errs, e[k])
	}
	return errs
}

func (e KeyErrors) keys() []string { return slices.Sorted(maps.Keys(e)) }
