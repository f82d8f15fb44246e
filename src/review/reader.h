/* SPDX-License-Identifier: MIT
 *
 * The readers, one file each, behind one door: tell the kind of a file by its content, then read it into
 * policies and findings. A file of no known kind is a problem, never a pass.
 */
#ifndef SAMEKEY_REVIEW_READER_H
#define SAMEKEY_REVIEW_READER_H

#include "review/tree.h"

/* Reads s as `format`, or as what it looks like. STATUS_INVALID after a problem was added. */
enum status reader_read(struct review *r, struct source *s, enum review_format format);

/* What the content looks like, without reading it whole; FORMAT_AUTO when it looks like nothing known, FORMAT_COUNT
 * when it is YAML or JSON and its members must tell. */
enum review_format reader_guess(const struct source *s);

/* Readers of lines. Each returns false after it added a problem. */
bool nginx_read(struct review *r, struct source *s);
bool haproxy_read(struct review *r, struct source *s);
bool shell_read(struct review *r, struct source *s);
bool celery_read(struct review *r, struct source *s);
bool rabbitmq_read(struct review *r, struct source *s);
bool properties_read(struct review *r, struct source *s);

/* Readers of trees. `root` is one document. */
void envoy_read(struct review *r, struct source *s, struct tree *root);
void kubernetes_read(struct review *r, struct source *s, struct tree *root);
void grpc_read(struct review *r, struct source *s, struct tree *root);
void spring_read(struct review *r, struct source *s, struct tree *root);
void rabbitmq_definitions_read(struct review *r, struct source *s, struct tree *root);
void mcp_read(struct review *r, struct source *s, struct tree *root);

/* Whether a name (of a method, a tool, a route) says that it only reads: getOrder, list_items, /search. */
bool reader_reads_only(struct slice name);

/* nginx directives inside another file (an Ingress snippet): judged as if they stood in a location. */
void nginx_snippet(struct review *r, struct source *s, unsigned line, const char *place, struct slice text);

/* What the words of an nginx next_upstream list mean; shared by nginx and ingress-nginx. */
void nginx_next_upstream(struct review *r, struct review_policy *p, struct slice words,
                         const struct source *s, unsigned line);

#endif
