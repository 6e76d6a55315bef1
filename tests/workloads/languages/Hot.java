// Three methods that take 6, 3 and 1 parts of the time. After a second, when they are compiled, the machine writes the map of
// its code; then they run for two seconds more.
public class Hot {
    static int sink;

    static void burnMost(int rounds) { for (int k = 0; k < rounds * 6; k++) sink += k ^ sink; }
    static void burnSome(int rounds) { for (int k = 0; k < rounds * 3; k++) sink += k ^ sink; }
    static void burnLeast(int rounds) { for (int k = 0; k < rounds; k++) sink += k ^ sink; }

    static void run(long milliseconds) {
        for (long end = System.currentTimeMillis() + milliseconds; System.currentTimeMillis() < end;) {
            burnMost(10000);
            burnSome(10000);
            burnLeast(10000);
        }
    }

    public static void main(String[] arguments) throws Exception {
        run(1000);
        String pid = Long.toString(ProcessHandle.current().pid());
        new ProcessBuilder("jcmd", pid, "Compiler.perfmap").start().waitFor();
        run(2000);
    }
}
