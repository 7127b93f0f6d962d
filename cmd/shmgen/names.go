package main

import (
	"path/filepath"
	"strings"
	"unicode"
)

// snake converts a Go name to the style of C: UserID becomes user_id.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && runes[i-1] != '_' &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	out := b.String()
	if reserved[out] {
		out += "_"
	}
	return out
}

func upper(name string) string { return strings.ToUpper(strings.TrimSuffix(name, "_")) }

// isC reports whether s has the form of an identifier in C and C++.
func isC(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && !strings.HasPrefix(s, "__")
}

// guardOf returns the name of the include guard of a header.
func guardOf(file string, types []string) string {
	name := strings.Join(types, "_") + "_shm.h"
	if file != "" {
		name = filepath.Base(file)
	}
	name = strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, name)
	return "SHMGEN_" + name
}

// reserved are the names that a field or a struct cannot have: keywords of C11 and C++20, and macros
// of the headers that shmsync.h includes.
var reserved = func() map[string]bool {
	m := map[string]bool{}
	for _, s := range strings.Fields(`
		alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
		co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
		default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
		int int8_t int16_t int32_t int64_t long mutable namespace new noexcept not not_eq nullptr operator or or_eq
		private protected public register reinterpret_cast requires restrict return short signed sizeof size_t static
		static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
		typeof uint8_t uint16_t uint32_t uint64_t union unsigned using virtual void volatile wchar_t while xor xor_eq
		assert complex errno i386 imaginary linux major makedev minor noreturn null offsetof stderr stdin stdout unix`) {
		m[s] = true
	}
	return m
}()
