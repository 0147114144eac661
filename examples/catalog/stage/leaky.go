package stage

import "context"

// leaky is like none, without the null sentinel. A value that doesn't exist is never cached, so
// each request for it goes to the origin.
type leaky struct{ drops }

func (l *leaky) Get(ctx context.Context, key string) (string, error) {
	value, found, err := l.look(ctx, key)
	if err != nil || found {
		return value, err
	}
	value, err = l.fetch(ctx, key)
	if err != nil || value == "" {
		return "", err
	}
	return value, l.fill(ctx, key, value, l.CacheTTL)
}
