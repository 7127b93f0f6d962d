//go:build linux && !amd64

package stopstorm

import (
	"context"
	"errors"
)

func stepAll(context.Context, *Options, target, *Document) error {
	return errors.New("--step needs an amd64 processor")
}
