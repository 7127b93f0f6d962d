// Package snippets compiles the Go code of the documents.
//
// A fenced block of Go is a file, or declarations, or statements. Declarations and
// statements get their imports from the names that they use. A comment before the block
// declares, as variables of a package, the names that the block uses but does not declare:
//
//	<!-- with: pool *sync.Pool; repair func() error -->
//
// Every block has ctx, a context, and a, an arena. An unused variable is no error.
//
// A test also follows docs/getting-started.md: it saves each block after a comment with a file name,
// and types the commands of each console block into the terminal that the comment above names.
//
//	<!-- file: main.go -->
//	<!-- terminal: second -->
package snippets
