// Package madeup gives tests invented results, and checks pages.
package madeup
