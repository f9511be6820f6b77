// Command hello is a program that builds quickly.
package main

func main() { println("hello") }
