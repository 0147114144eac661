package stage

import "context"

// none caches, but doesn't protect: if the value isn't cached, every request loads it.
type none struct{ drops }

func (n *none) Get(ctx context.Context, key string) (string, error) {
	value, found, err := n.look(ctx, key)
	if err != nil || found {
		return value, err
	}
	return n.fetchAndFill(ctx, key)
}
