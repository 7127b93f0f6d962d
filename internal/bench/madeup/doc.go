// Package madeup gives tests invented results, and checks HTML pages that are made from them.
package madeup
