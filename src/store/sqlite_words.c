/* SPDX-License-Identifier: MIT
 *
 * What is wrong with a store's file, as a sentence with a remedy.
 */
#include "store/sqlite.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool folder_wrong(struct buffer *error, const char *path)
{
    struct stat about;
    const char *slash = strrchr(path, '/');
    struct buffer folder = {0};
    buffer_append(&folder, slash ? path : ".", slash ? (size_t)(slash - path) + (slash == path) : 1);
    const char *name = buffer_cstring(&folder);
    bool wrong = true;
    if (stat(name, &about) != 0)
        buffer_format(
            error,
            "The folder %s of the receipt store cannot be reached (%s): create it, owned by the user who "
            "runs samekey.",
            name, strerror(errno));
    else if (!S_ISDIR(about.st_mode))
        buffer_format(error, "%s is not a folder: name the receipt store as sqlite:FOLDER/FILE.", name);
    else if (access(name, W_OK | X_OK) != 0)
        buffer_format(
            error,
            "The folder %s of the receipt store is not writable (%s), and SQLite keeps its log beside the "
            "file: give it to the user who runs samekey.",
            name, strerror(errno));
    else
        wrong = false;
    buffer_fini(&folder);
    return wrong;
}

enum status sqlite_words(struct buffer *error, const char *path, int rc, sqlite3 *db)
{
    struct stat about;
    switch (rc & 0xff) {
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
        if (folder_wrong(error, path))
            break;
        if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
            buffer_format(error, "%s is a folder: name a file in it, sqlite:%s/receipts.db.", path, path);
        else if (access(path, R_OK | W_OK) != 0 && errno != ENOENT)
            buffer_format(error, "%s cannot be read and written (%s): give it to the user who runs samekey.",
                          path, strerror(errno));
        else
            buffer_format(error, "%s cannot be opened (%s): check the file and the folder it is in.", path,
                          db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
        break;
    case SQLITE_NOTADB:
        buffer_format(error,
                      "%s is not an SQLite database: name another file in `store`, or move this one away.",
                      path);
        break;
    case SQLITE_CORRUPT:
        buffer_format(
            error,
            "%s is damaged (%s): keep a copy, and restore the newest backup; `sqlite3 %s .recover` may save "
            "more.",
            path, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc), path);
        break;
    case SQLITE_FULL:
        buffer_format(error, "The disk of %s is full: free some space; nothing was changed.", path);
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        buffer_format(error, "%s is locked by another program: end it (a shell with an open transaction?).",
                      path);
        break;
    case SQLITE_NOMEM:
        buffer_format(error, "There is no memory to open %s.", path);
        return STATUS_NO_MEMORY;
    default:
        buffer_format(error, "%s cannot be used (%s): check its disk.", path,
                      db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    }
    return STATUS_IO;
}
