/* SPDX-License-Identifier: MIT
 *
 * A PostgreSQL server for a test program: a folder of its own, a socket in it and no port. As root it runs as the user
 * postgres, or nobody, since PostgreSQL refuses root.
 */
#ifndef SAMEKEY_TEST_POSTGRES_SERVER_H
#define SAMEKEY_TEST_POSTGRES_SERVER_H

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char server_folder[64], server_bin[200], server_url[200];
static pid_t server_pid;

static inline bool server_installed(void)
{
    glob_t found;
    bool any = glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) == 0 && found.gl_pathc;
    if (any) {
        snprintf(server_bin, sizeof server_bin, "%s", found.gl_pathv[found.gl_pathc - 1]);
        *strrchr(server_bin, '/') = '\0';
        globfree(&found);
    }
    return any;
}

static inline const struct passwd *server_account(void)
{
    const struct passwd *account = getpwnam("postgres");
    return account ? account : getpwnam("nobody");
}

/* Runs a program of PostgreSQL's in the folder. */
static inline pid_t server_spawn(const char *const *arguments)
{
    char program[260];
    snprintf(program, sizeof program, "%s/%s", server_bin, arguments[0]);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0), dup2(null, 1), dup2(null, 2);
    const struct passwd *account = getuid() == 0 ? server_account() : NULL;
    if (account && (setgroups(0, NULL) != 0 || setgid(account->pw_gid) != 0 || setuid(account->pw_uid) != 0))
        _exit(126);
    if (chdir(server_folder) != 0)
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGQUIT); /* a change of user clears it */
    execv(program, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

static inline void server_start(void)
{
    const char *const arguments[] = {
        "postgres",          "-D", "data",      "-k", server_folder,        "-c",
        "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60", NULL};
    server_pid = server_spawn(arguments);
    for (int i = 0; i < 600; i++) {
        if (PQping(server_url) == PQPING_OK)
            return;
        usleep(50000);
    }
    fprintf(stderr, "PostgreSQL did not start in %s\n", server_folder);
    exit(2);
}

static inline void server_stop(int how)
{
    int status;
    if (!server_pid)
        return;
    kill(server_pid, how);
    waitpid(server_pid, &status, 0);
    server_pid = 0;
}

static inline void server_make(void)
{
    const char *const arguments[] = {"initdb",   "-D", "data", "-A",   "trust", "-U", "samekey",
                                     "--locale", "C",  "-E",   "UTF8", "-N",    NULL};
    int status = 0;
    snprintf(server_folder, sizeof server_folder, "/tmp/samekey-pg-XXXXXX");
    if (!mkdtemp(server_folder)) {
        perror(server_folder);
        exit(2);
    }
    if (getuid() == 0 && chown(server_folder, server_account()->pw_uid, server_account()->pw_gid) != 0)
        exit(2);
    snprintf(server_url, sizeof server_url, "postgres://samekey@/postgres?host=%s", server_folder);
    waitpid(server_spawn(arguments), &status, 0);
    if (status != 0) {
        fprintf(stderr, "initdb failed\n");
        exit(2);
    }
    server_start();
}

static inline void server_clean(void)
{
    char command[100];
    server_stop(SIGINT);
    snprintf(command, sizeof command, "rm -rf '%s'", server_folder);
    if (system(command) != 0)
        perror(server_folder);
}

/* One text; what it gives as a number, 0 for nothing. */
static inline long long server_sql(const char *sql)
{
    PGconn *conn = PQconnectdb(server_url);
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fprintf(stderr, "%s: %s", sql, PQerrorMessage(conn));
        exit(2);
    }
    long long number = PQntuples(result) ? atoll(PQgetvalue(result, 0, 0)) : 0;
    PQclear(result);
    PQfinish(conn);
    return number;
}

#endif
