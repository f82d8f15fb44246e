/* SPDX-License-Identifier: MIT
 *
 * The commands of the one program (CONTRACT section 8). Each is a function in a file of its own name; argv[0] is the
 * command's name and the rest are its own flags and arguments. Returns the exit code.
 */
#ifndef SAMEKEY_CLI_COMMAND_H
#define SAMEKEY_CLI_COMMAND_H

/* The gateway (CONTRACT sections 5, 7). 0; 64 usage; 69 store or address unavailable; 78 bad configuration. */
int command_gateway(int argc, char **argv);

/* What became of a call (CONTRACT sections 4, 8). 0 SUCCESS; 3 FAILED; 4 UNKNOWN, running, or nothing to be believed was
 * answered; 5 NOT_RECEIVED; 64 usage; 74 result not writable. */
int command_receipt(int argc, char **argv);

/* Giving a call up. 0 fenced; 1 it had taken effect before; 3 it had failed before; 4 it may be running, or nothing to be
 * believed was answered. Never 0 for a call that took effect, so that `fence && do it again` is safe. */
int command_fence(int argc, char **argv);

/* As fence; and 0 too for a call that took effect and is being undone. */
int command_cancel(int argc, char **argv);

/* The follow-up of unclear calls, over the admin address (CONTRACT section 8). 0; 1 refused, not found, nobody answered; 64
 * usage. */
int command_compensations(int argc, char **argv);

/* New callIds, one a line (CONTRACT section 2). 0; 64 usage; 74 result not writable. */
int command_id(int argc, char **argv);

/* Simulations (CONTRACT section 11). 0; 1 an invariant broke; 64 usage; 71 no memory; 74 result not writable. */
int command_simulate(int argc, char **argv);

/* Policy and configuration review (CONTRACT section 8). 0 nothing; 1 findings; 64 usage; 66 a file cannot be read or is
 * of no known kind; 71 no memory; 74 result not writable. */
int command_check(int argc, char **argv);

/* One safe call, and the journal of them (CONTRACT section 8). 0 SUCCESS; 3 FAILED; 4 UNKNOWN or running; 64 usage or a
 * bound key; 66 no such call; 70 libcurl; 71 no memory; 73 result not writable; 74 journal not writable, nothing sent. */
int command_call(int argc, char **argv);
int command_calls(int argc, char **argv);

/* Log forensics (CONTRACT section 8). 0 clean; bit 1 findings, bit 2 lines unreadable; 64 usage; 66 a file cannot be read. */
int command_diagnose(int argc, char **argv);

/* Receipts against business rows (CONTRACT section 8). 0 agree; 1 differ; 64 usage; 69 cannot ask. */
int command_reconcile(int argc, char **argv);

/* The guard's SQL (CONTRACT section 8). 0; 64 usage; 74 result not writable. */
int command_schema(int argc, char **argv);

#endif
