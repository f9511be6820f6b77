import java.util.HashMap;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs the statements that are its arguments, as Flink's SQL client does, and prints the rows of
 * the last one, with tabs between the columns. The last statement must be a query that ends.
 */
public class FlinkSQL {
  public static void main(String[] args) throws Exception {
    Configuration config = new Configuration();
    config.setString("parallelism.default", "1");
    config.setString("taskmanager.memory.managed.size", "16m");
    config.setString("taskmanager.memory.network.min", "16m");
    config.setString("taskmanager.memory.network.max", "16m");
    TableEnvironment flink =
        TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(config).build());
    for (int i = 0; i < args.length - 1; i++) {
      flink.executeSql(args[i]);
    }
    Map<Row, Integer> rows = new HashMap<>();
    // The result isn't closed: Flink has shut down when the query ends.
    CloseableIterator<Row> changes = flink.executeSql(args[args.length - 1]).collect();
    while (changes.hasNext()) {
      Row row = changes.next();
      boolean added = row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER;
      row.setKind(RowKind.INSERT);
      rows.merge(row, added ? 1 : -1, Integer::sum);
    }
    rows.forEach((row, count) -> {
      for (int n = 0; n < count; n++) {
        System.out.println(line(row));
      }
    });
    System.exit(0);
  }

  private static String line(Row row) {
    String[] columns = new String[row.getArity()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = String.valueOf(row.getField(i));
    }
    return String.join("\t", columns);
  }
}
