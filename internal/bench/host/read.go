//go:build linux

package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/bench/place"
)

// ReadLine returns the text of a small file of the kernel, or an empty string if it cannot be
// read.
func ReadLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// LoadAverage returns the mean number of runnable threads during the last minute.
func LoadAverage() float64 {
	load, _ := strconv.ParseFloat(strings.SplitN(ReadLine("/proc/loadavg"), " ", 2)[0], 64)
	return load
}

// ReadCPUList reads a file with a list in the kernel's form, such as 0-3,8. The list may be empty.
func ReadCPUList(name string) ([]int, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return nil, nil
	}
	list, err := place.ParseInts(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
