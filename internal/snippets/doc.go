// Package snippets compiles the Go code of the documents.
//
// A fenced block of Go is a file, or declarations, or statements; the latter two
// get their imports from the names that they use. What a reader has to imagine
// stands in a comment before the block, as variables of a package:
//
//	<!-- with: pool *sync.Pool; repair func() error -->
//
// Every block has ctx, a context, and a, an arena. What is not used is no error.
package snippets
