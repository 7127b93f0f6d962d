/* Two processes go through a number of phases of a pthread_barrier that they share. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long phases = argc > 1 ? atol(argv[1]) : 1;
	pthread_barrier_t *b = mmap(0, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;

	if (b == MAP_FAILED || pthread_barrierattr_init(&attr) ||
	    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) || pthread_barrier_init(b, &attr, 2))
		return 1;
	pid_t other = fork();
	for (long i = 0; i < phases; i++)
		pthread_barrier_wait(b);
	return other != 0 && waitpid(other, 0, 0) < 0;
}
