/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the tests of a file, each in a process of its own
 * (criterion/criterion.h). */
#include <criterion/criterion.h>

#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static case_of *cases; /* and what suites say of theirs */
static int failures;

void case_add(case_of *one)
{
    one->next_ = cases;
    cases = one;
}

void case_failed(const char *file, int line, const char *what, bool ends)
{
    printf("%s:%d: not so: %s\n", file, line, what);
    failures++;
    if (ends) {
        exit(1);
    }
}

void case_skip(void) { exit(SKIPPED); }

static const case_of *suite_of(const case_of *one)
{
    static const case_of none;

    for (const case_of *suite = cases; suite != NULL; suite = suite->next_) {
        if (suite->name_ == NULL && strcmp(suite->suite_, one->suite_) == 0) {
            return suite;
        }
    }
    return &none;
}

static void run(const case_of *one)
{
    void (*steps[])(void) = {suite_of(one)->init, one->init, one->run_,
                             one->fini, suite_of(one)->fini};

    alarm(120);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        if (steps[i] != NULL) {
            steps[i]();
        }
    }
    exit(failures > 0);
}

int main(void)
{
    int passed = 0;
    int skipped = 0;
    int failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const case_of *one = cases; one != NULL; one = one->next_) {
        int status = 0;
        pid_t child;

        if (one->name_ == NULL) {
            continue;
        }
        child = fork();
        if (child == 0) {
            run(one);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0) {
            perror(one->name_);
            return 1;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
            skipped++;
        } else if (WIFSIGNALED(status) ? WTERMSIG(status) == one->signal
                                       : status == 0) {
            passed++;
        } else {
            printf("failed: %s/%s (status %#x)\n", one->suite_, one->name_,
                   (unsigned)status);
            failed++;
        }
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}
