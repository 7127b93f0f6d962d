// Package child has what a program needs that starts itself again as a worker.
package child
