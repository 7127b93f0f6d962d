// Package cmdline decodes arguments of commands. A path may have any bytes, but the mappers of package kong pass each
// string through JSON, which replaces bytes that are no valid UTF-8. With those mappers, a command would act on another
// file.
package cmdline

import (
	"fmt"
	"os"
	"reflect"

	"github.com/alecthomas/kong"
)

// Options makes a parser use the mappers of this package.
func Options() []kong.Option {
	return []kong.Option{
		kong.KindMapper(reflect.String, kong.MapperFunc(decodeString)),
		kong.NamedMapper("existingfile", kong.MapperFunc(decodeExistingFile)),
	}
}

// decodeString stores an argument in a string as it is.
func decodeString(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := pop(ctx)
	if err == nil {
		target.SetString(text)
	}
	return err
}

// decodeExistingFile stores the path of a file, or of several files, which must exist and not be directories.
func decodeExistingFile(ctx *kong.DecodeContext, target reflect.Value) error {
	if target.Kind() == reflect.Slice {
		for ctx.Scan.Peek().IsValue() {
			file := reflect.New(target.Type().Elem()).Elem()
			if err := decodeExistingFile(ctx, file); err != nil {
				return err
			}
			target.Set(reflect.Append(target, file))
		}
		return nil
	}
	path, err := pop(ctx)
	if err != nil {
		return err
	}
	path = kong.ExpandPath(path)
	switch stat, err := os.Stat(path); {
	case err != nil:
		return err
	case stat.IsDir():
		return fmt.Errorf("%q exists but is a directory", path)
	}
	target.SetString(path)
	return nil
}

func pop(ctx *kong.DecodeContext) (string, error) {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return "", err
	}
	text, ok := token.Value.(string)
	if !ok {
		return "", fmt.Errorf("expected a string, but got %v", token.Value)
	}
	return text, nil
}
