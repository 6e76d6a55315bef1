// loads SECONDS LIBRARY...: loads each library, has it burn CPU time (stages.c), and unloads it, so that the
// next lies at its addresses.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	void *first = NULL;

	for (int i = 2; i < argc; i++) {
		void *library = dlopen(argv[i], RTLD_NOW);
		void (*burn)(double) = library ? (void (*)(double))dlsym(library, "burn") : NULL;

		if (!burn) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		first = first ? first : (void *)burn;
		if ((void *)burn != first)
			fprintf(stderr, "not at the same address\n");
		burn(atof(argv[1]));
		dlclose(library);
	}
	return 0;
}
