// Package madeup gives tests results that nobody has measured, and checks pages.
package madeup
