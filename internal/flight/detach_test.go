package flight

import "context"

// Detach makes the context for the work of a flight: it has parent's values but not its end, and is
// cancelled with cause when the last member has left. The caller calls the returned function when
// the work is over.
func (f *Flight[T]) Detach(
	parent context.Context, cause error,
) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	f.DetachTo(func() { cancel(cause) }, func() {})
	return ctx, cancel
}
