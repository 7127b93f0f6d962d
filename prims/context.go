package prims

import "context"

// orEndless returns ctx, or a context that never ends if ctx is nil.
func orEndless(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
