// Package child helps a program to start itself again as a worker.
package child
