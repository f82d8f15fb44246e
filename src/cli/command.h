/* SPDX-License-Identifier: MIT
 *
 * The commands of the one program (CONTRACT section 8). Each is a function in a file of its own name; argv[0] is the
 * command's name and the rest are its own flags and arguments. Returns the exit code.
 */
#ifndef SAMEKEY_CLI_COMMAND_H
#define SAMEKEY_CLI_COMMAND_H

/* Simulations (CONTRACT section 11). 0; 1 an invariant broke; 64 usage; 71 no memory; 74 result not writable. */
int command_simulate(int argc, char **argv);

/* Policy and configuration review (CONTRACT section 8). 0 nothing; 1 findings; 64 usage; 66 a file cannot be read or is
 * of no known kind; 71 no memory; 74 result not writable. */
int command_check(int argc, char **argv);

#endif
