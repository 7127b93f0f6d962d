package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// expand calls yield with the name and the text of each file that a line of a .tree file describes.
func expand(file, text string, yield func(file, text string)) error {
	return expandPath(file, text, -1, yield)
}

// expandPath replaces the first list in a path by each of its numbers, and calls itself for the remaining lists. n
// is the number that has replaced the first list of the whole path, or -1 if no list has been replaced yet.
func expandPath(file, text string, n int, yield func(file, text string)) error {
	before, rest, ok := strings.Cut(file, "{")
	if !ok {
		text, err := expandText(text, n)
		if err == nil {
			yield(file, text)
		}
		return err
	}
	list, after, ok := strings.Cut(rest, "}")
	if !ok {
		return fmt.Errorf("%q has no closing brace", file)
	}
	numbers, err := ParseList(list)
	if err != nil {
		return err
	}
	for _, v := range numbers {
		first := n
		if first < 0 {
			first = v
		}
		if err := expandPath(before+strconv.Itoa(v)+after, text, first, yield); err != nil {
			return err
		}
	}
	return nil
}

// expandText replaces the braces in a text by numbers computed from n.
func expandText(text string, n int) (string, error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "{")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		term, after, ok := strings.Cut(rest, "}")
		by := 0
		if term != "" && ok {
			v, err := strconv.Atoi(term)
			if err != nil {
				return "", fmt.Errorf("{%s} is no number to add", term)
			}
			by = v
		}
		if !ok || n < 0 {
			return "", fmt.Errorf("%q needs a list in its path", text)
		}
		b.WriteString(strconv.Itoa(n + by))
		text = after
	}
}
