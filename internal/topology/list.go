package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// maxID is a limit for the numbers in a list of CPUs. No kernel is built for so many CPUs.
const maxID = 1 << 13

// ParseList reads a list in the form of the kernel, such as 0-3,8. An empty text is an empty list.
func ParseList(text string) ([]int, error) {
	var list []int
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err := strconv.ParseUint(from, 10, 32)
		hi, err2 := strconv.ParseUint(to, 10, 32)
		if err != nil || err2 != nil || hi < lo || hi >= maxID {
			return nil, fmt.Errorf("%q is no list of numbers", text)
		}
		for v := lo; v <= hi; v++ {
			list = append(list, int(v))
		}
		if len(list) > maxID {
			return nil, fmt.Errorf("%q is too long", text)
		}
	}
	return list, nil
}

// ParseMask reads a set of CPUs in the form of old kernels: hexadecimal words of 32 bits, separated by commas. The last
// word is for the CPUs with the lowest numbers.
func ParseMask(text string) ([]int, error) {
	words := strings.Split(strings.TrimSpace(text), ",")
	if len(words) > maxID/32 {
		return nil, fmt.Errorf("%q is too long", text)
	}
	var list []int
	for i := range words {
		word, err := strconv.ParseUint(words[len(words)-1-i], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no mask", text)
		}
		for bit := range 32 {
			if word&(1<<bit) != 0 {
				list = append(list, 32*i+bit)
			}
		}
	}
	return list, nil
}

// FormatList writes an ascending list in the kernel's form.
func FormatList(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		part := strconv.Itoa(list[i])
		if j > i {
			part += "-" + strconv.Itoa(list[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// parseSize reads the size of a cache, such as 32768K. It returns the number of bytes.
func parseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "KMGkB ")
	v, err := strconv.ParseInt(number, 10, 48)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%q is no size", text)
	}
	switch strings.TrimSpace(strings.TrimPrefix(text, number)) {
	case "":
		return v, nil
	case "K", "kB", "KB":
		return v << 10, nil
	case "M":
		return v << 20, nil
	case "G":
		return v << 30, nil
	}
	return 0, fmt.Errorf("%q is no size", text)
}

// formatSize returns a number of bytes in a readable form.
func formatSize(bytes int64) string {
	for _, u := range []struct {
		by   int64
		name string
	}{{1 << 40, "TB"}, {1 << 30, "GB"}, {1 << 20, "MB"}, {1 << 10, "kB"}} {
		if bytes < u.by {
			continue
		}
		if v := float64(bytes) / float64(u.by); bytes%u.by != 0 && v < 100 {
			return strconv.FormatFloat(v, 'f', 1, 64) + " " + u.name
		}
		return strconv.FormatInt((bytes+u.by/2)/u.by, 10) + " " + u.name
	}
	return strconv.FormatInt(bytes, 10) + " B"
}
